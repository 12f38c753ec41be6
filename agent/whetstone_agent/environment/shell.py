"""All commands of a trial over one exec connection: a shell stays in the pod and takes one after the other.

To start a command by a connection of its own takes API server, kubelet and runtime longer than most commands take.
The shell runs each command in a session of its own, as such a connection does, so that a command that is out of time is
killed with all that it started; and it waits, as such a connection does, until nobody holds the command's output.
A command whose shell is in use gets a connection of its own, and so do all commands of an image that lacks what the
shell needs.
"""

import asyncio
import contextlib
import secrets
import shlex
from collections.abc import AsyncIterator
from typing import Final

import aiohttp

from whetstone_agent.environment.errors import ExecTransportError
from whetstone_agent.environment.exec import (
    TIMEOUT_EXIT,
    Buffer,
    Completed,
    PodExec,
    Sink,
    close,
    feed,
    frame_of,
    marked,
    new_mark,
)
from whetstone_agent.environment.frames import Channel, Frame, encode, exit_code

_LACKING: Final = 63
"""Exit code of the shell where the image lacks a tool."""
_KILLED: Final = 128 + 9
_KNOCK_SECONDS: Final = 10.0
_READY: Final = b"ready"
_SHELL: Final = (
    "command -v setsid >/dev/null && command -v head >/dev/null && command -v cat >/dev/null"
    f" || exit {_LACKING}\n"
    # Commands get pipes, so that what they leave behind can write nothing into the output of those that follow.
    "exec 6>&1 7>&2 8<&0\n"
    'while read -r whetstone_size; do eval "$(head -c "$whetstone_size")"; done'
)
"""Reads the size of a request and then the request; `head` may read ahead, so nothing is sent before the last answer.
A pipe to `cat` ends when the last process has closed it."""


class PodShell:
    """Runs scripts in one container, by one connection as long as that holds.

    Args:
        pod: Makes the connections.
    """

    def __init__(self, pod: PodExec) -> None:
        self._pod = pod
        self._connection: _Connection | None = None
        self._in_use = False
        self._lacking = False

    async def run(
        self,
        script: str,
        *,
        stdin: AsyncIterator[bytes] | None = None,
        timeout_seconds: float | None = None,
        stdout: Sink | None = None,
    ) -> Completed:
        """Run a script; see `PodExec.run`. One that takes standard input must know where it ends.

        Raises:
            ExecTransportError: The connection failed before an exit code came.
        """
        if not self._in_use and not self._lacking:
            self._in_use = True
            try:
                done = await self._run(script, stdin=stdin, timeout_seconds=timeout_seconds, stdout=stdout)
            finally:
                self._in_use = False
            if done is not None:
                return done
        return await self._pod.run(script, stdin=stdin, timeout_seconds=timeout_seconds, stdout=stdout)

    async def knock(self) -> bool:
        """Try once whether the container takes commands yet."""
        try:
            connection = self._connection = _Connection(await self._pod.open(_SHELL, stdin=True, tries=1))
            async with asyncio.timeout(_KNOCK_SECONDS):
                await connection.ask(_Request(":", _nowhere, _nowhere, takes_input=False), None)
        except (ExecTransportError, aiohttp.ClientError, OSError, ValueError):
            await self.close()
            return False
        except asyncio.CancelledError:
            await self.close()
            raise
        self._lacking = connection.lacking
        return True

    async def answers(self, *, timeout_seconds: float) -> None:
        """Make sure that the container takes commands.

        Args:
            timeout_seconds: How long each of two tries may take.

        Raises:
            ExecTransportError: It does not.
        """
        for _ in range(2):
            # A shell that ends with its container ends with a code too, and that is no answer.
            if (await self.run(":", timeout_seconds=timeout_seconds)).exit_code == 0:
                return
        raise ExecTransportError(f"{self._pod} takes no commands any more")

    async def close(self) -> None:
        """End the shell."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _run(
        self,
        script: str,
        *,
        stdin: AsyncIterator[bytes] | None,
        timeout_seconds: float | None,
        stdout: Sink | None,
    ) -> Completed | None:
        """Run a script in the shell; None where the image lacks what that needs, and nothing ran."""
        mark, out, err = new_mark(), Buffer(), Buffer()
        request = _Request(marked(script, mark), stdout or out.add, err.add, takes_input=stdin is not None)
        try:
            if self._connection is None or self._connection.ended:
                await self.close()
                self._connection = _Connection(await self._pod.open(_SHELL, stdin=True))
            async with asyncio.timeout(timeout_seconds):
                code = await self._connection.ask(request, stdin)
        except TimeoutError:
            await self._pod.stop(mark)
            await self.close()
            request.flush()
            code = TIMEOUT_EXIT
        except asyncio.CancelledError:
            await asyncio.shield(self._pod.stop(mark))
            await self.close()
            raise
        except (aiohttp.ClientError, OSError, ValueError) as error:
            await self.close()
            raise ExecTransportError(f"exec in {self._pod}: {error or type(error).__name__}") from error
        if self._connection is not None and self._connection.lacking:
            self._lacking = True
            return None
        if code != 0 and stdin is not None:
            # It may have left input unread, which the shell would take for requests.
            await self.close()
        return Completed(exit_code=code, stdout=bytes(out.data), stderr=bytes(err.data))


def _nowhere(_: bytes) -> None:
    """Take output that nobody wants."""


class _Request:
    """A script on its way through the shell."""

    def __init__(self, script: str, stdout: Sink, stderr: Sink, *, takes_input: bool) -> None:
        self._mark = secrets.token_hex(16)
        self._script = script
        self._takes_input = takes_input
        self._stdout = _UntilMark(self._mark.encode(), stdout)
        self._stderr = _UntilMark(self._mark.encode(), stderr)
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = loop.create_future()
        self.done: asyncio.Future[int] = loop.create_future()

    def text(self) -> bytes:
        """Return what the shell evaluates."""
        ready = f"printf '%s %s\\n' {self._mark} {_READY.decode()} >&6\n" if self._takes_input else ""
        source = "&8" if self._takes_input else "/dev/null"
        return (
            f"{ready}whetstone_code=$({{ {{ {{ setsid sh -c {shlex.quote(self._script)} <{source}"
            " 2>&3 3>&- 5>&- 6>&- 7>&- 8<&-; echo $? >&5; } | cat >&6; } 3>&1 | cat >&7; } 5>&1)\n"
            # No code: what was to tell it was killed.
            f"printf '%s %s\\n' {self._mark} \"${{whetstone_code:-{_KILLED}}}\" >&6\n"
            f"printf '%s\\n' {self._mark} >&7"
        ).encode()

    def take(self, frame: Frame) -> None:
        """Take what the shell says.

        Raises:
            ValueError: It is no answer.
        """
        if frame.channel == Channel.STDOUT:
            self._stdout.take(frame.payload)
            if self._stdout.word == _READY and not self.ready.done():
                self.ready.set_result(None)
                self._stdout.go_on()
        elif frame.channel == Channel.STDERR:
            self._stderr.take(frame.payload)
        if self._stdout.word is not None and self._stderr.word is not None and not self.done.done():
            self.done.set_result(int(self._stdout.word))

    def ended(self, status: bytes) -> None:
        """Take the exit code of the shell for the command's, which the shell's end has ended too.

        But a shell whose input was closed, as where its container ends, tells success, and nothing of the command.
        """
        self.flush()
        try:
            code = exit_code(status)
        except ValueError as error:
            self.failed(error)
            return
        if code == 0:
            self.failed(ValueError("the shell ended before the command did"))
        elif not self.done.done():
            self.done.set_result(code)

    def failed(self, error: Exception) -> None:
        """End without an exit code."""
        if not self.done.done():
            self.done.set_exception(error)

    def flush(self) -> None:
        """Give out what was kept back."""
        self._stdout.flush()
        self._stderr.flush()


class _UntilMark:
    """Gives out the bytes of a stream up to the line that begins with a mark."""

    def __init__(self, mark: bytes, sink: Sink) -> None:
        self._mark = mark
        self._sink = sink
        self._held = bytearray()
        self.word: bytes | None = None
        """What the line says after the mark, once it came."""

    def take(self, data: bytes) -> None:
        """Take the next bytes."""
        self._held += data
        begin = self._held.find(self._mark)
        end = self._held.find(b"\n", begin) if begin >= 0 else -1
        if end >= 0:
            self._give(begin)
            self.word = bytes(self._held[len(self._mark) : end - begin]).strip()
            del self._held[: end - begin + 1]
        elif begin < 0:
            # The end may be the mark's beginning.
            self._give(max(0, len(self._held) - len(self._mark) + 1))

    def go_on(self) -> None:
        """Look for the next line."""
        self.word = None
        self.take(b"")

    def flush(self) -> None:
        """Give out what may have been the mark's beginning."""
        self._give(len(self._held))

    def _give(self, size: int) -> None:
        if size:
            self._sink(bytes(self._held[:size]))
            del self._held[:size]


class _Connection:
    """A shell in the pod, one request at a time."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._request: _Request | None = None
        self._answered = False
        self.ended = False
        self.lacking = False
        # Always reading: that is how a connection is found to be dead between commands.
        self._reading = asyncio.create_task(self._read())

    async def ask(self, request: _Request, stdin: AsyncIterator[bytes] | None) -> int:
        """Let the shell run a request; return its exit code.

        Raises:
            aiohttp.ClientError, OSError, ValueError: The connection ended before.
        """
        self._request = request
        if self.ended:
            raise ValueError("the connection ended before the command began")
        text = request.text()
        # Where it cannot be sent the connection has ended, and the reader tells how.
        with contextlib.suppress(aiohttp.ClientError, OSError):
            await self._socket.send_bytes(encode(Channel.STDIN, f"{len(text)}\n".encode() + text))
        feeding = asyncio.create_task(self._feed(request, stdin)) if stdin is not None else None
        try:
            return await request.done
        finally:
            self._request = None
            if feeding is not None:
                feeding.cancel()
                # The command may end without reading all of its input.
                with contextlib.suppress(asyncio.CancelledError, aiohttp.ClientError, OSError):
                    await feeding

    async def close(self) -> None:
        """End the shell."""
        self.ended = True
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading
        await close(self._socket)

    async def _feed(self, request: _Request, stdin: AsyncIterator[bytes]) -> None:
        await request.ready
        await feed(self._socket, stdin)

    async def _read(self) -> None:
        error: Exception = ValueError("the connection ended before the command did")
        try:
            async for message in self._socket:
                frame = frame_of(message)
                if frame is not None and frame.channel == Channel.STATUS:
                    self._end(frame.payload)
                    return
                if frame is not None and self._request is not None:
                    self._answered = True
                    self._request.take(frame)
        except (aiohttp.ClientError, OSError, ValueError) as found:
            error = found
        finally:
            self.ended = True
        if self._request is not None:
            self._request.failed(error)

    def _end(self, status: bytes) -> None:
        with contextlib.suppress(ValueError):
            self.lacking = not self._answered and exit_code(status) == _LACKING
        if self._request is not None:
            self._request.ended(status)
