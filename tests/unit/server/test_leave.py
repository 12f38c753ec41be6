"""The hook that holds a pod's end up until no client uses the pod."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

import aiohttp
import pytest
from support.fake_vllm import BASE, FakeVllm
from whetstone_api.pod_state import GUARD_PATH, GuardRoutes
from whetstone_api.vocabulary import TOKEN_HEADER
from whetstone_server.guard.whetstone_guard.drain import Drain
from whetstone_server.guard.whetstone_guard.leave import ask_guard, leave

TOKEN = {TOKEN_HEADER: "s3cret"}
SECONDS = 10.0


def seconds_waited(answers: Iterable[float | Exception]) -> float:
    """Run the hook with answers of a guard, one a poll; return for how long it waited."""
    now = [0.0]
    given = iter(answers)

    def ask() -> float:
        answer = next(given)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def pause(seconds: float) -> None:
        now[0] += seconds

    leave(ask, least=2, quiet=1, limit=5, clock=lambda: now[0], pause=pause)
    return now[0]


@pytest.mark.parametrize(
    ("answers", "waited"),
    [
        ([9.0] * 20, 2),
        ([0.0] * 6 + [0.5, 1.0], 3.5),
        ([0.0] * 20, 5),
        ([TimeoutError()] * 20, 5),
        ([ValueError("not JSON"), KeyError("refused")] + [OSError()] * 3 + [9.0] * 5, 2.5),
        ([ConnectionRefusedError()], 0),
        ([0.0, ConnectionRefusedError()], 0.5),
    ],
    ids=["at once", "until quiet", "limit", "engine hangs", "engine stumbles", "no engine", "engine ends"],
)
def test_pod_ends_when_nobody_uses_it(answers: list[float | Exception], waited: float) -> None:
    assert seconds_waited(answers) == waited


def test_quiet_begins_with_the_end_of_the_last_answer() -> None:
    now = [0.0]
    drain = Drain(clock=lambda: now[0])
    with drain.serving():
        now[0] = 5
        with drain.serving():
            pass
        assert drain.quiet_seconds() == 0
        now[0] = 7
    now[0] = 10
    assert drain.quiet_seconds() == 3


async def test_stream_and_the_next_request_on_its_connection_are_answered(token_file: Path) -> None:
    engine = FakeVllm(token_file)
    body = {"model": BASE, "prompt": "x", "stream": True}
    async with engine.served() as url, aiohttp.ClientSession() as client, aiohttp.ClientSession(headers=TOKEN) as owner:
        await owner.put(url + GUARD_PATH, json=GuardRoutes(open=True, base=BASE).model_dump(by_alias=True))
        engine.end_streams.clear()
        async with client.post(f"{url}/v1/completions", json=body) as stream:
            ending = asyncio.create_task(asyncio.to_thread(leave_guard, engine.port, token_file))
            await until_draining(owner, url)
            assert "connection" not in stream.headers
            engine.end_streams.set()
            assert (await stream.text()).endswith("data: [DONE]\n\n")
        async with client.post(f"{url}/v1/completions", json={**body, "stream": False}) as following:
            assert (following.status, following.headers["connection"]) == (200, "close")
        assert not ending.done()
        await asyncio.wait_for(ending, SECONDS)


async def test_probes_of_the_kubelet_do_not_hold_a_pod_up(token_file: Path) -> None:
    engine = FakeVllm(token_file)
    async with engine.served() as url, aiohttp.ClientSession() as kubelet:
        before = await asyncio.to_thread(ask_guard, engine.port, token_file)
        async with kubelet.get(f"{url}/health") as health:
            assert health.status == 200
        assert await asyncio.to_thread(ask_guard, engine.port, token_file) > before


def leave_guard(port: int, token_file: Path) -> None:
    leave(lambda: ask_guard(port, token_file), least=0, quiet=1, limit=SECONDS)


async def until_draining(owner: aiohttp.ClientSession, url: str) -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            async with owner.get(url + GUARD_PATH) as answer:
                if answer.headers.get("connection") == "close":
                    return
