"""Frames of the exec protocol, the server's side of it, and the script that ends a session."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio import client
from whetstone_agent.environment.cluster import Cluster
from whetstone_agent.environment.errors import ExecTransportError
from whetstone_agent.environment.exec import PodAddress, PodExec, stop_script
from whetstone_agent.environment.frames import Channel, decode, encode, encode_close, exit_code

SUCCESS = json.dumps({"status": "Success"}).encode()


def failure(code: int) -> bytes:
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return json.dumps({"status": "Failure", "details": {"causes": causes}}).encode()


def test_frames_keep_every_byte() -> None:
    data = bytes(range(256)) * 2
    frame = decode(encode(Channel.STDOUT, data))
    assert (frame.channel, frame.payload) == (Channel.STDOUT, data)


def test_closing_names_the_channel() -> None:
    assert encode_close(Channel.STDIN) == b"\xff\x00"


def test_an_empty_message_is_refused() -> None:
    with pytest.raises(ValueError, match="channel"):
        decode(b"")


def test_status_is_an_exit_code_or_the_servers_words() -> None:
    assert exit_code(SUCCESS) == 0
    assert exit_code(failure(137)) == 137
    with pytest.raises(ValueError, match="container not found"):
        exit_code(json.dumps({"status": "Failure", "message": "container not found"}).encode())


type Serve = Callable[[web.WebSocketResponse], Awaitable[None]]


@asynccontextmanager
async def kubelet(*answers: Serve | int) -> AsyncIterator[tuple[PodExec, list[web.Request]]]:
    """Serve exec connections one after the other, each by its answer; a number is a refused handshake."""
    requests: list[web.Request] = []
    left = list(answers)

    async def handle(request: web.Request) -> web.StreamResponse:
        requests.append(request)
        answer = left.pop(0)
        if isinstance(answer, int):
            return web.Response(status=answer)
        socket = web.WebSocketResponse(protocols=("v5.channel.k8s.io",))
        await socket.prepare(request)
        await answer(socket)
        return socket

    app = web.Application()
    app.router.add_get("/api/v1/namespaces/team/pods/p/exec", handle)
    server = TestServer(app)
    await server.start_server()
    configuration = client.Configuration(host=str(server.make_url("")).rstrip("/"))
    cluster = Cluster(client.ApiClient(configuration))
    try:
        yield PodExec(cluster, PodAddress(namespace="team", pod="p", container="main")), requests
    finally:
        await cluster.close()
        await server.close()


async def test_output_streams_are_told_apart_and_the_exit_code_ends_the_command() -> None:
    async def serve(socket: web.WebSocketResponse) -> None:
        await socket.send_bytes(encode(Channel.STDOUT, b"\x00\xff"))
        await socket.send_bytes(encode(Channel.STDERR, b"oops"))
        await socket.send_bytes(encode(Channel.STDOUT, b"\x01"))
        await socket.send_bytes(encode(Channel.STATUS, failure(3)))

    async with kubelet(serve) as (pod, requests):
        done = await pod.run("false")
    assert (done.exit_code, done.stdout, done.stderr) == (3, b"\x00\xff\x01", b"oops")
    assert requests[0].query["container"] == "main"
    assert requests[0].query.getall("command")[:2] == ["sh", "-c"]


async def test_input_is_sent_and_closed() -> None:
    received: list[bytes] = []

    async def serve(socket: web.WebSocketResponse) -> None:
        async for message in socket:
            if message.data == encode_close(Channel.STDIN):
                break
            received.append(message.data[1:])
        await socket.send_bytes(encode(Channel.STATUS, SUCCESS))

    async def data() -> AsyncIterator[bytes]:
        yield b"one\x00"
        yield b"two"

    async with kubelet(serve) as (pod, _):
        assert (await pod.run("cat", stdin=data())).exit_code == 0
    assert received == [b"one\x00", b"two"]


async def test_a_command_without_end_is_stopped_by_a_second_exec() -> None:
    async def hang(socket: web.WebSocketResponse) -> None:
        await socket.send_bytes(encode(Channel.STDOUT, b"begun"))
        async for _ in socket:
            pass

    async def succeed(socket: web.WebSocketResponse) -> None:
        await socket.send_bytes(encode(Channel.STATUS, SUCCESS))

    async with kubelet(hang, succeed) as (pod, requests):
        done = await pod.run("sleep 9999", timeout_seconds=0.2)
    assert (done.exit_code, done.stdout) == (124, b"begun")
    assert "kill -KILL" in requests[1].query.getall("command")[2]


async def test_a_cancelled_command_is_stopped_too() -> None:
    begun = asyncio.Event()

    async def hang(socket: web.WebSocketResponse) -> None:
        begun.set()
        async for _ in socket:
            pass

    async def succeed(socket: web.WebSocketResponse) -> None:
        await socket.send_bytes(encode(Channel.STATUS, SUCCESS))

    async with kubelet(hang, succeed) as (pod, requests):
        running = asyncio.create_task(pod.run("sleep 9999"))
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert len(requests) == 2


async def test_a_connection_that_breaks_is_no_exit_code() -> None:
    async def drop(socket: web.WebSocketResponse) -> None:
        await socket.send_bytes(encode(Channel.STDOUT, b"half"))

    async with kubelet(drop) as (pod, _):
        with pytest.raises(ExecTransportError, match="before the command did"):
            await pod.run("make")


async def test_a_refused_start_is_tried_again_only_where_that_can_help(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(_: float) -> None:
        return None

    async def succeed(socket: web.WebSocketResponse) -> None:
        await socket.send_bytes(encode(Channel.STATUS, SUCCESS))

    monkeypatch.setattr("whetstone_agent.environment.exec.asyncio", _with_sleep(at_once))
    async with kubelet(500, 503, succeed) as (pod, requests):
        assert (await pod.run("true")).exit_code == 0
        assert len(requests) == 3
    async with kubelet(404) as (pod, requests):
        with pytest.raises(ExecTransportError, match="refused"):
            await pod.run("true")


def _with_sleep(sleep: Any) -> Any:
    return SimpleNamespace(**{**vars(asyncio), "sleep": sleep})


def test_stop_script_kills_the_whole_session_and_nothing_else(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    forking = "for i in $(seq 50); do sleep 300 & done"
    script = f"echo $$ >{mark}; set -m; (sleep 300 | cat) & sleep 300 & echo ready; {forking}; wait"
    inside = subprocess.Popen(["bash", "-c", script], start_new_session=True, stdout=subprocess.PIPE)
    outside = subprocess.Popen(["sleep", "300"], start_new_session=True)
    try:
        assert inside.stdout is not None
        assert inside.stdout.readline() == b"ready\n"
        subprocess.run(["sh", "-c", stop_script(str(mark))], check=True, timeout=30)
        assert inside.wait(timeout=30) == -9
        # Standard output ends only when the last process that holds it does.
        assert inside.stdout.read() == b""
        assert outside.poll() is None
        assert not mark.exists()
    finally:
        outside.kill()
        outside.wait()
        inside.kill()
        if inside.stdout is not None:
            inside.stdout.close()
