"""Many commands over one connection: a real shell behind a stand-in for API server and kubelet."""

import asyncio
import json
import os
import re
import secrets
import time
from collections.abc import AsyncIterator
from pathlib import Path, PurePosixPath

import pytest
from aiohttp import web
from support.waiting import DEADLINE_SECONDS
from unit.agent.test_exec import failure, kubelet
from whetstone_agent.environment import transfer
from whetstone_agent.environment.errors import ExecTransportError, TransferError
from whetstone_agent.environment.frames import Channel, encode
from whetstone_agent.environment.shell import PodShell

SUCCESS = json.dumps({"status": "Success"}).encode()


async def real(socket: web.WebSocketResponse, *, path: str | None = None) -> None:
    """Run the command of a connection as a kubelet does, in a session of its own."""
    command = socket._req.query.getall("command")  # type: ignore[union-attr]
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "PATH": path} if path is not None else None,
    )

    async def out(stream: asyncio.StreamReader | None, channel: Channel) -> None:
        assert stream is not None
        while chunk := await stream.read(4096):
            await socket.send_bytes(encode(channel, chunk))

    async def take() -> None:
        assert process.stdin is not None
        async for message in socket:
            if message.data[0] == Channel.STDIN:
                process.stdin.write(message.data[1:])
                await process.stdin.drain()
        process.stdin.close()

    taking = asyncio.create_task(take())
    try:
        await asyncio.gather(out(process.stdout, Channel.STDOUT), out(process.stderr, Channel.STDERR))
        code = await process.wait()
        status = failure(code if code >= 0 else 128 - code) if code else SUCCESS
        if not socket.closed:
            await socket.send_bytes(encode(Channel.STATUS, status))
    finally:
        taking.cancel()
        if process.returncode is None:
            process.kill()
        await process.wait()


async def drop(socket: web.WebSocketResponse) -> None:
    """Break the connection."""


async def ended(process: int) -> None:
    """Wait until a process has been killed; what it leaves is its parent's to collect."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            if not _runs(process):
                return
            await asyncio.sleep(0.05)


def _runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_commands_take_turns_on_one_connection_and_keep_every_byte() -> None:
    async with kubelet(real) as (pod, requests):
        shell = PodShell(pod)
        first = await shell.run("printf 'a\\0b'; echo oops >&2; exit 3")
        second = await shell.run("cat; echo $whetstone_size; printf end")
        long = await shell.run("head -c 300000 /dev/zero; echo end >&2")
        await shell.close()
    assert (first.exit_code, first.stdout, first.stderr) == (3, b"a\0b", b"oops\n")
    assert (second.exit_code, second.stdout, second.stderr) == (0, b"\nend", b"")
    assert (long.stdout, long.stderr) == (bytes(300_000), b"end\n")
    assert len(requests) == 1


async def test_files_go_there_and_back_on_the_same_connection(tmp_path: Path) -> None:
    data = secrets.token_bytes(200_000)
    (tmp_path / "there.bin").write_bytes(data)
    async with kubelet(real, real) as (pod, requests):
        shell = PodShell(pod)
        await transfer.upload_file(shell, tmp_path / "there.bin", PurePosixPath(tmp_path / "deep er" / "x.bin"))
        await transfer.download_file(shell, PurePosixPath(tmp_path / "deep er" / "x.bin"), tmp_path / "back.bin")
        assert len(requests) == 1
        with pytest.raises(TransferError):
            await transfer.upload_file(shell, tmp_path / "there.bin", PurePosixPath("/proc/none/x.bin"))
        # What that upload left unread must not be taken for a command.
        assert (await shell.run("echo well")).stdout == b"well\n"
        await shell.close()
    assert (tmp_path / "back.bin").read_bytes() == data
    assert len(requests) == 2


async def test_a_command_while_another_one_runs_gets_a_connection_of_its_own(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    async with kubelet(real, real) as (pod, requests):
        shell = PodShell(pod)
        waiting = asyncio.create_task(shell.run(f"cat {tmp_path}/gate"))
        assert (await shell.run(f"echo through >{tmp_path}/gate")).exit_code == 0
        assert (await waiting).stdout == b"through\n"
        await shell.close()
    assert len(requests) == 2


async def test_a_command_out_of_time_is_killed_with_all_it_started_and_the_next_one_runs(tmp_path: Path) -> None:
    async with kubelet(real, real, real) as (pod, requests):
        shell = PodShell(pod)
        begun = time.monotonic()
        done = await shell.run(
            f"printf begun; echo $$ >{tmp_path}/leader; (sleep 300 & sleep 300) | cat", timeout_seconds=2
        )
        assert (done.exit_code, done.stdout) == (124, b"begun")
        assert time.monotonic() - begun < 30
        await ended(int((tmp_path / "leader").read_text()))
        assert (await shell.run("echo again")).stdout == b"again\n"
        await shell.close()
    assert "kill -KILL" in requests[1].query.getall("command")[2]
    assert len(requests) == 3


async def test_output_of_what_a_command_leaves_behind_stays_with_that_command() -> None:
    async with kubelet(real) as (pod, _):
        shell = PodShell(pod)
        first = await shell.run("(sleep 0.3; echo late) & echo early")
        second = await shell.run("echo second")
        await shell.close()
    assert first.stdout == b"early\nlate\n"
    assert second.stdout == b"second\n"


async def test_a_killed_shell_ends_its_command_and_the_next_one_gets_a_new_shell() -> None:
    async with kubelet(real, real) as (pod, requests):
        shell = PodShell(pod)
        parent = "$(ps -o ppid= -p $(ps -o sid= -p $$))"
        assert (await shell.run(f"kill -9 {parent}; sleep 0.2")).exit_code == 137
        assert (await shell.run("echo same")).stdout == b"same\n"
        assert len(requests) == 1
        killed = await shell.run(f"echo first; kill -9 $(ps -o sid= -p {parent}); sleep 0.2")
        assert killed.exit_code == 137
        assert (await shell.run("echo again")).stdout == b"again\n"
        await shell.close()
    assert len(requests) == 2


async def dying(socket: web.WebSocketResponse, *, status: bytes | None = None) -> None:
    """Be the shell of a container that ends: its command is killed first, and it itself at the next request."""
    requests = 0
    async for message in socket:
        marks = re.findall(rb"printf '%s %s\\n' ([0-9a-f]{32})", message.data)
        requests += len(marks)
        if requests > 1:
            await socket.send_bytes(encode(Channel.STATUS, status or failure(137)))
            return
        for mark in marks:
            await socket.send_bytes(encode(Channel.STDOUT, mark + b" 137\n"))
            await socket.send_bytes(encode(Channel.STDERR, mark + b"\n"))


async def test_a_shell_that_ends_with_its_container_is_no_answer() -> None:
    async with kubelet(dying, drop) as (pod, requests):
        shell = PodShell(pod)
        assert (await shell.run("sleep 600")).exit_code == 137
        with pytest.raises(ExecTransportError):
            await shell.answers(timeout_seconds=DEADLINE_SECONDS)
    assert len(requests) == 2


async def test_a_shell_whose_input_is_closed_tells_nothing_of_its_command() -> None:
    async def closed(socket: web.WebSocketResponse) -> None:
        await dying(socket, status=SUCCESS)

    async with kubelet(closed) as (pod, _):
        shell = PodShell(pod)
        await shell.run("sleep 600")
        with pytest.raises(ExecTransportError, match="ended before the command did"):
            await shell.run("make test")


async def test_a_killed_shell_of_a_container_that_goes_on_is_replaced_to_answer() -> None:
    async with kubelet(dying, real) as (pod, _):
        shell = PodShell(pod)
        assert (await shell.run("sleep 600")).exit_code == 137
        await shell.answers(timeout_seconds=DEADLINE_SECONDS)
        await shell.close()


async def test_an_image_without_setsid_gets_a_connection_for_each_command(tmp_path: Path) -> None:
    for name in ("sh", "cat", "rm", "head"):
        (tmp_path / name).symlink_to(f"/bin/{name}")

    async def poor(socket: web.WebSocketResponse) -> None:
        await real(socket, path=str(tmp_path))

    async with kubelet(poor, poor, poor) as (pod, requests):
        shell = PodShell(pod)
        assert (await shell.run("echo one")).stdout == b"one\n"
        assert (await shell.run("echo two")).stdout == b"two\n"
        await shell.close()
    assert len(requests) == 3


async def test_a_connection_that_breaks_is_no_exit_code_and_breaks_only_what_runs() -> None:
    async def half(socket: web.WebSocketResponse) -> None:
        await socket.receive()
        await socket.send_bytes(encode(Channel.STDOUT, b"half"))

    async with kubelet(half, real) as (pod, requests):
        shell = PodShell(pod)
        with pytest.raises(ExecTransportError, match="before the command did"):
            await shell.run("make")
        assert (await shell.run("echo whole")).stdout == b"whole\n"
        await shell.close()
    assert len(requests) == 2


async def test_a_cancelled_command_is_stopped_too() -> None:
    begun = asyncio.Event()

    async def hang(socket: web.WebSocketResponse) -> None:
        begun.set()
        async for _ in socket:
            pass

    async with kubelet(hang, real) as (pod, requests):
        shell = PodShell(pod)
        running = asyncio.create_task(shell.run("sleep 9999"))
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert "kill -KILL" in requests[1].query.getall("command")[2]


async def test_input_that_nobody_reads_does_not_hold_a_command_up() -> None:
    async def data() -> AsyncIterator[bytes]:
        yield b"unread"

    async with kubelet(real, real) as (pod, _):
        shell = PodShell(pod)
        assert (await shell.run("exit 4", stdin=data())).exit_code == 4
        assert (await shell.run("echo next")).stdout == b"next\n"
        await shell.close()


async def test_a_container_that_does_not_run_yet_is_asked_once_and_then_answers_on_one_connection() -> None:
    async with kubelet(500, real) as (pod, requests):
        shell = PodShell(pod)
        assert not await shell.knock()
        assert len(requests) == 1
        assert await shell.knock()
        assert (await shell.run("echo there")).stdout == b"there\n"
        await shell.close()
    assert len(requests) == 2
