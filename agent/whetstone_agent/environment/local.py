"""Scripts as processes of this machine, found again by a mark in their environment."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

from whetstone_agent.environment.exec import KEPT_BYTES, TIMEOUT_EXIT, Completed, Sink

_CHUNK: Final = 64 << 10
_PASSES: Final = 100
_KEPT_VARIABLES: Final = ("PATH", "LANG", "HOME")
"""What scripts see of this process's environment: no addresses, keys and names of the runner."""


class LocalScripts:
    """Runs scripts of the POSIX shell as processes.

    Args:
        enter: Command that runs the rest of its line in the trial's namespaces; empty where it has none.
        mark: Variable (`NAME=value`) that all of the trial's processes carry.
    """

    def __init__(self, enter: Sequence[str], *, mark: str) -> None:
        self._enter = list(enter)
        self.mark = mark

    async def run(
        self,
        script: str,
        *,
        stdin: AsyncIterator[bytes] | None = None,
        timeout_seconds: float | None = None,
        stdout: Sink | None = None,
    ) -> Completed:
        """Run a script; see `PodExec.run`."""
        name, _, value = self.mark.partition("=")
        variables = {key: os.environ[key] for key in _KEPT_VARIABLES if key in os.environ}
        process = await asyncio.create_subprocess_exec(
            *self._enter,
            "sh",
            "-c",
            'exec "$(command -v bash || command -v sh)" -c "$1"',
            "run",
            script,
            stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**variables, name: value},
            start_new_session=True,
        )
        out, err = bytearray(), bytearray()
        try:
            async with asyncio.timeout(timeout_seconds):
                assert process.stdout is not None
                assert process.stderr is not None
                await asyncio.gather(
                    _drain(process.stdout, stdout or _keeper(out)),
                    _drain(process.stderr, _keeper(err)),
                    _feed(process, stdin),
                )
                code = await process.wait()
        except TimeoutError:
            code = TIMEOUT_EXIT
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        return Completed(exit_code=code if code >= 0 else 128 - code, stdout=bytes(out), stderr=bytes(err))


def kill_marked(mark: str) -> int:
    """Kill all processes that carry a mark, and return how many there were. Some may fork meanwhile; not for ever."""
    killed: set[int] = set()
    for _ in range(_PASSES):
        found = [pid for path in Path("/proc").glob("[0-9]*/environ") if (pid := _marked(path, mark)) is not None]
        if not found:
            break
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed.update(found)
    return len(killed)


def _marked(path: Path, mark: str) -> int | None:
    try:
        return int(path.parent.name) if mark.encode() in path.read_bytes().split(b"\0") else None
    except OSError:
        return None


def _keeper(data: bytearray) -> Sink:
    def keep(chunk: bytes) -> None:
        data.extend(chunk[: max(0, KEPT_BYTES - len(data))])

    return keep


async def _drain(stream: asyncio.StreamReader, sink: Sink) -> None:
    while chunk := await stream.read(_CHUNK):
        sink(chunk)


async def _feed(process: asyncio.subprocess.Process, stdin: AsyncIterator[bytes] | None) -> None:
    if stdin is None or process.stdin is None:
        return
    # The command may end without reading all of its input.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        async for chunk in stdin:
            process.stdin.write(chunk)
            await process.stdin.drain()
    process.stdin.close()
