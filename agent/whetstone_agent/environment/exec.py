"""Run a command in a pod: binary-safe, with its exit code, and with nothing left behind after a timeout."""

import asyncio
import contextlib
import secrets
import shlex
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final, Protocol

import aiohttp

from whetstone_agent.environment.cluster import Cluster
from whetstone_agent.environment.errors import ExecTransportError
from whetstone_agent.environment.frames import Channel, Frame, decode, encode, encode_close, exit_code

TIMEOUT_EXIT: Final = 124
"""Exit code of a command that ran out of time, as `timeout(1)` has it."""
KEPT_BYTES: Final = 8 << 20
"""Bytes of each output stream that are kept; a command that writes more is not stopped."""
CONNECT_TRIES: Final = 4
_STOP_SECONDS: Final = 15.0
_STOP_PASSES: Final = 100
_PASSING_STATUS: Final = frozenset({429, 500, 502, 503, 504})

Sink = Callable[[bytes], None]


@dataclass(frozen=True, kw_only=True)
class PodAddress:
    """A container of a pod."""

    namespace: str
    pod: str
    container: str


@dataclass(frozen=True, kw_only=True)
class Completed:
    """How a command ended."""

    exit_code: int
    stdout: bytes
    stderr: bytes


class RunsScripts(Protocol):
    """Where commands of a trial run."""

    async def run(
        self,
        script: str,
        *,
        stdin: AsyncIterator[bytes] | None = None,
        timeout_seconds: float | None = None,
        stdout: Sink | None = None,
    ) -> Completed:
        """Run a script of the POSIX shell; see `PodExec.run`."""


class PodExec:
    """Runs commands in one container.

    Args:
        cluster: Connection to the API server.
        address: The container.
    """

    def __init__(self, cluster: Cluster, address: PodAddress) -> None:
        self._cluster = cluster
        self._address = address

    def __str__(self) -> str:
        return f"pod {self._address.pod}"

    async def run(
        self,
        script: str,
        *,
        stdin: AsyncIterator[bytes] | None = None,
        timeout_seconds: float | None = None,
        stdout: Sink | None = None,
    ) -> Completed:
        """Run a script of the POSIX shell.

        Args:
            script: What to run.
            stdin: Standard input in pieces; empty when absent.
            timeout_seconds: After that all processes of the script's session are killed and the exit code is 124.
            stdout: Gets standard output instead of `Completed.stdout`, without a limit.

        Raises:
            ExecTransportError: The connection failed before an exit code came.
        """
        mark = new_mark()
        out, err = Buffer(), Buffer()
        socket: aiohttp.ClientWebSocketResponse | None = None
        try:
            socket = await self.open(marked(script, mark), stdin=stdin is not None)
            async with asyncio.timeout(timeout_seconds):
                code = await _pump(socket, stdin=stdin, stdout=stdout or out.add, stderr=err.add)
        except TimeoutError:
            await self.stop(mark)
            code = TIMEOUT_EXIT
        except asyncio.CancelledError:
            await asyncio.shield(self.stop(mark))
            raise
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ExecTransportError(f"exec in pod {self._address.pod}: {error or type(error).__name__}") from error
        finally:
            if socket is not None:
                await close(socket)
        return Completed(exit_code=code, stdout=bytes(out.data), stderr=bytes(err.data))

    async def open(self, script: str, *, stdin: bool, tries: int = CONNECT_TRIES) -> aiohttp.ClientWebSocketResponse:
        """Start a script; a connection that is refused for a passing reason is tried again.

        Raises:
            ExecTransportError: It is refused.
        """
        address = self._address
        for attempt in range(1, tries + 1):
            try:
                return await self._cluster.open_exec(
                    namespace=address.namespace,
                    pod=address.pod,
                    container=address.container,
                    command=["sh", "-c", script],
                    stdin=stdin,
                )
            except aiohttp.ClientError as error:
                status = getattr(error, "status", None)
                passing = status is None or status in _PASSING_STATUS
                if not passing or attempt == tries:
                    message = f"exec in pod {address.pod} was refused: {error}"
                    raise ExecTransportError(message) from error
            # The command has not started, so starting it again is safe.
            await asyncio.sleep(0.25 * 2**attempt)
        raise AssertionError("unreachable")

    async def stop(self, mark: str) -> None:
        """Kill every process of the marked session. A pod that no longer answers has none."""
        with contextlib.suppress(ExecTransportError, aiohttp.ClientError, OSError, TimeoutError, ValueError):
            async with asyncio.timeout(_STOP_SECONDS):
                socket = await self.open(stop_script(mark), stdin=False)
                try:
                    await _pump(socket, stdin=None, stdout=lambda _: None, stderr=lambda _: None)
                finally:
                    await close(socket)


class Buffer:
    """The first `KEPT_BYTES` of an output stream."""

    def __init__(self) -> None:
        self.data = bytearray()

    def add(self, chunk: bytes) -> None:
        """Take the next bytes of the stream."""
        self.data += chunk[: max(0, KEPT_BYTES - len(self.data))]


async def close(socket: aiohttp.ClientWebSocketResponse) -> None:
    """Close a connection; a kubelet that is gone does not answer the closing handshake."""
    with contextlib.suppress(TimeoutError, aiohttp.ClientError, OSError):
        async with asyncio.timeout(1):
            await socket.close()


def frame_of(message: aiohttp.WSMessage) -> Frame | None:
    """Return the frame that a message carries, if it carries one.

    Raises:
        ValueError: It carries none of the protocol.
    """
    if message.type is aiohttp.WSMsgType.TEXT:
        return decode(message.data.encode())
    return decode(message.data) if message.type is aiohttp.WSMsgType.BINARY else None


async def _pump(
    socket: aiohttp.ClientWebSocketResponse, *, stdin: AsyncIterator[bytes] | None, stdout: Sink, stderr: Sink
) -> int:
    """Move bytes both ways until the exit code comes."""
    feeder = asyncio.create_task(_feed_all(socket, stdin)) if stdin is not None else None
    try:
        async for message in socket:
            frame = frame_of(message)
            if frame is None:
                continue
            if frame.channel == Channel.STDOUT:
                stdout(frame.payload)
            elif frame.channel == Channel.STDERR:
                stderr(frame.payload)
            elif frame.channel == Channel.STATUS:
                return exit_code(frame.payload)
    finally:
        if feeder is not None:
            feeder.cancel()
            # The command may end without reading all of its input.
            with contextlib.suppress(asyncio.CancelledError, aiohttp.ClientError, OSError):
                await feeder
    raise ValueError("the connection ended before the command did")


async def feed(socket: aiohttp.ClientWebSocketResponse, stdin: AsyncIterator[bytes]) -> None:
    """Send bytes to the standard input, and leave it open."""
    async for chunk in stdin:
        await socket.send_bytes(encode(Channel.STDIN, chunk))


async def _feed_all(socket: aiohttp.ClientWebSocketResponse, stdin: AsyncIterator[bytes]) -> None:
    await feed(socket, stdin)
    await socket.send_bytes(encode_close(Channel.STDIN))


def new_mark() -> str:
    """Return a place in the sandbox, with a name that nobody there guesses, for the id of a session."""
    return f"/tmp/.whetstone-{secrets.token_hex(8)}"  # noqa: S108


def marked(script: str, mark: str) -> str:
    """Wrap a script that leads a session, as each exec does, so that the session can be found."""
    return (
        f"echo $$ >{mark} 2>/dev/null\n"
        "shell=$(command -v bash || command -v sh)\n"
        f'"$shell" -c {shlex.quote(script)}\n'
        f"code=$?\nrm -f {mark}\nexit $code"
    )


def stop_script(mark: str) -> str:
    """Return a script that kills all processes of a marked session. It needs no tools beyond the shell's own.

    In `/proc/<pid>/stat` the fields after the last `)` are state, parent, process group and session (proc(5)). A
    process may fork while the list is read, so the list is read until it is empty, but not for ever.
    """
    return (
        f"read -r session <{mark} || exit 0\n"
        "left=yes passes=0\n"
        f'while [ -n "$left" ] && [ $passes -lt {_STOP_PASSES} ]; do\n'
        "  left= passes=$((passes + 1))\n"
        "  for file in /proc/[0-9]*/stat; do\n"
        '    read -r line <"$file" 2>/dev/null || continue\n'
        "    set -- ${line##*) }\n"
        '    [ "$4" = "$session" ] && [ "$1" != Z ] || continue\n'
        "    left=yes pid=${file#/proc/}\n"
        '    kill -KILL "${pid%/stat}" 2>/dev/null\n'
        "  done\n"
        "done\n"
        f"rm -f {mark}"
    )
