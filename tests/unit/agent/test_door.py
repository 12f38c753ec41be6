"""The door between agents and the measured model, over real HTTP."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from unit.agent.conftest import SERVED
from unit.agent.fake_model import FakeModel
from whetstone_agent.agents.absence import Absence
from whetstone_agent.agents.door import Door, Sampling, Session
from whetstone_agent.agents.errors import (
    BudgetExceededError,
    ModelRefusedError,
    ModelUnavailableError,
    RunBudgetExceededError,
    TargetChangedError,
)
from whetstone_agent.agents.length import length_of
from whetstone_agent.agents.run_budget import RunBudget

type StartModel = Callable[..., Awaitable[tuple[FakeModel, str]]]
MESSAGES = [{"role": "user", "content": "hello"}]


def door_to(url: str, **fields: Any) -> Door:
    settings: dict[str, Any] = {"pauses_seconds": (0.0,), "request_seconds": 10.0, **fields}
    return Door(server_url=url, served_name=SERVED, sampling=Sampling(temperature=0.5, top_p=0.9), **settings)


async def ask(session: Session, **fields: Any) -> tuple[int, str]:
    body = {"model": SERVED, "messages": MESSAGES, **fields}
    async with aiohttp.ClientSession() as client, client.post(f"{session.url}/chat/completions", json=body) as answer:
        return answer.status, await answer.text()


def entered(door: Door, **fields: Any) -> Session:
    return door.enter(**{"seed": 3, "token_limit": None, **fields})


async def test_the_runs_sampling_wins_over_the_agents(model: StartModel) -> None:
    fake, url = await model(lambda _: "hi")
    async with door_to(url) as door:
        status, _ = await ask(entered(door), temperature=1.7, seed=99, top_p=0.1, max_tokens=5)
    assert status == 200
    sent = {name: fake.requests[0][name] for name in ("temperature", "top_p", "seed", "max_tokens")}
    assert sent == {"temperature": 0.5, "top_p": 0.9, "seed": 3, "max_tokens": 5}


async def test_what_a_session_used_is_counted(model: StartModel) -> None:
    fake, url = await model(lambda _: "hi")
    async with door_to(url) as door:
        session = entered(door)
        await ask(session)
        fake.faults = [400]
        status, text = await ask(session)
    assert (status, "maximum context length" in text) == (400, True)
    assert (session.usage.calls, session.usage.tokens, session.usage.overflows) == (1, 13, 1)
    assert session.end is None


@pytest.mark.parametrize(
    ("faults", "end"),
    [
        ([500, 503], ModelUnavailableError),
        ([429, 429], ModelUnavailableError),
        ([404], TargetChangedError),
        ([401], ModelRefusedError),
    ],
)
async def test_a_failure_of_the_server_ends_the_session(
    model: StartModel, faults: list[int], end: type[Exception]
) -> None:
    fake, url = await model(lambda _: "hi")
    async with door_to(url) as door:
        session = entered(door)
        fake.faults = list(faults)
        status, _ = await ask(session)
        later, _ = await ask(session)
    assert isinstance(session.end, end)
    assert (status, later, fake.faults) == (503, 503, [])
    assert len(fake.requests) == len(faults)


async def test_a_passing_failure_is_tried_again(model: StartModel) -> None:
    fake, url = await model(lambda _: "hi")
    async with door_to(url) as door:
        session = entered(door)
        fake.faults = [503]
        status, _ = await ask(session)
    assert (status, session.end) == (200, None)


async def test_trials_wait_from_a_failure_until_the_server_takes_calls_again(
    model: StartModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(Absence.__init__.__kwdefaults__, "pause_seconds", 0.01)
    fake, url = await model(lambda _: "hi")
    async with door_to(url) as door:
        fake.faults = [503, 503]
        await ask(entered(door))
        await door.until_there()
        fake.away = 1
        await asyncio.wait_for(door.until_there(), 30)
        assert fake.away == 0, "the server was not asked"
        await ask(entered(door))
        fake.away = 1
        await door.until_there()
        assert fake.away == 1, "a server that answers calls was asked"


async def test_another_version_that_answers_never_reaches_the_agent(model: StartModel) -> None:
    fake, url = await model(lambda _: "secret")
    fake.answers_as = "terminal--99999999"
    async with door_to(url) as door:
        session = entered(door)
        status, text = await ask(session)
    assert (status, "secret" in text) == (503, False)
    assert isinstance(session.end, TargetChangedError)


async def test_an_agent_may_ask_for_the_measured_version_only(model: StartModel) -> None:
    fake, url = await model(lambda _: "hi")
    async with door_to(url) as door:
        session = entered(door)
        status, text = await ask(session, model="base")
        stranger = Session(url=session.url.replace("/v1", "x/v1"), seed=0)
        assert (await ask(stranger))[0] == 404
        door.leave(session)
        assert (await ask(session))[0] == 404
    assert (status, SERVED in text, session.end, fake.requests) == (404, True, None, [])


async def test_budgets_of_trial_and_run_end_the_next_call(model: StartModel) -> None:
    fake, url = await model(lambda _: "hi")
    async with door_to(url, budget=RunBudget(30, used=4)) as door:
        small, large = entered(door, token_limit=13), entered(door)
        assert [(await ask(small))[0], (await ask(small))[0]] == [200, 503]
        assert [(await ask(large))[0], (await ask(large))[0]] == [200, 503]
    assert isinstance(small.end, BudgetExceededError)
    assert isinstance(large.end, RunBudgetExceededError)
    assert len(fake.requests) == 2


@pytest.fixture
async def odd_server() -> AsyncIterator[Callable[[Any], Awaitable[str]]]:
    """Start a server of one handler; gives its base URL."""
    servers = []

    async def start(handler: Any) -> str:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", handler)
        server = TestServer(app)
        await server.start_server()
        servers.append(server)
        return str(server.make_url("/v1"))

    yield start
    for server in servers:
        await server.close()


async def test_a_server_that_hangs_is_named_and_not_asked_again(odd_server: Callable[[Any], Awaitable[str]]) -> None:
    asked, release = [], asyncio.Event()

    async def hang(request: web.Request) -> web.Response:
        asked.append(request)
        await release.wait()
        return web.Response()

    async with door_to(await odd_server(hang), request_seconds=0.2) as door:
        session = entered(door)
        status, text = await ask(session)
    release.set()
    assert (status, len(asked)) == (503, 1)
    assert isinstance(session.end, ModelUnavailableError)
    assert "spec.concurrency" in text


async def test_a_server_that_answers_nothing_at_all_is_given_up_early() -> None:
    release = asyncio.Event()

    async def keep_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        writer.close()

    listener = await asyncio.start_server(keep_silent, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    async with door_to(f"http://127.0.0.1:{port}/v1", quiet_seconds=0.1, request_seconds=60.0) as door:
        session = entered(door)
        async with asyncio.timeout(20):
            status, text = await ask(session)
    release.set()
    listener.close()
    assert (status, "does not say that it is there" in text) == (503, True)
    assert isinstance(session.end, ModelUnavailableError)


async def test_a_slow_server_that_is_there_is_waited_for(odd_server: Callable[[Any], Awaitable[str]]) -> None:
    async def think(request: web.Request) -> web.Response:
        await asyncio.sleep(0.5)
        return web.json_response({"choices": []}, headers={"x-whetstone-adapter": SERVED})

    async with door_to(await odd_server(think), quiet_seconds=0.1) as door:
        session = entered(door)
        status, _ = await ask(session)
    assert (status, session.end) == (200, None)


async def test_a_stream_is_handed_on_and_counted(odd_server: Callable[[Any], Awaitable[str]]) -> None:
    seen = []

    async def stream(request: web.Request) -> web.StreamResponse:
        seen.append(await request.json())
        response = web.StreamResponse(headers={"x-whetstone-adapter": SERVED})
        await response.prepare(request)
        await response.write(b'data: {"choices": [{"delta": {"content": "hi"}}]}\n\n')
        await response.write(b'data: {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 3}}\n\n')
        await response.write(b"data: [DONE]\n\n")
        return response

    async with door_to(await odd_server(stream)) as door:
        session = entered(door)
        _, text = await ask(session, stream=True)
    assert text.count("data:") == 3
    assert (session.usage.calls, session.usage.tokens) == (1, 13)
    assert seen[0]["stream_options"] == {"include_usage": True}


async def test_a_stream_that_breaks_off_ends_the_session(odd_server: Callable[[Any], Awaitable[str]]) -> None:
    async def break_off(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"x-whetstone-adapter": SERVED, "Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b"data: {}\n\n")
        assert request.transport is not None
        request.transport.close()
        return response

    async with door_to(await odd_server(break_off)) as door:
        session = entered(door)
        await ask(session, stream=True)
    assert isinstance(session.end, ModelUnavailableError)


@pytest.mark.parametrize(
    ("cards", "length"),
    [
        ([{"id": SERVED, "max_model_len": 9}], 9),
        ([{"id": "other", "max_model_len": 5}, {"id": SERVED, "parent": "b"}, {"id": "b", "max_model_len": 7}], 7),
        ([{"id": SERVED}, {"id": "base", "max_model_len": 8}], 8),
        ([{"id": SERVED}], None),
    ],
)
def test_the_length_is_the_models_its_parents_or_the_bases(cards: list[dict[str, Any]], length: int | None) -> None:
    assert length_of(SERVED, cards) == length
