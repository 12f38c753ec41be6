"""The router of examples/phase-adapters, between a real client and a server that stands in for a ModelServer."""

import asyncio
import json
from typing import Any

import pytest
from aiohttp import ClientPayloadError, ClientSession, web
from aiohttp.test_utils import TestClient, TestServer
from unit.agent.fake_model import FakeModel
from unit.examples.programs import program

ROUTER = program("phase-adapters/router.py")
PHASES = {"strategic": "planner", "tactical": "worker"}
BODY: dict[str, Any] = {"model": "any", "messages": [{"role": "user", "content": "q"}], "max_tokens": 3}
CHAT = "/v1/chat/completions"


def client(upstream: TestServer, default: str = "") -> TestClient[web.Request, web.Application]:
    return TestClient(TestServer(ROUTER.Router(str(upstream.make_url("")), PHASES, default).app()))


@pytest.mark.parametrize(
    ("header", "default", "model"),
    [("strategic", "", "planner"), ("tactical", "", "worker"), (None, "tactical", "worker"), (None, "", "any")],
)
async def test_the_phase_decides_which_alias_is_asked(header: str | None, default: str, model: str) -> None:
    fake = FakeModel(name=model, mind=lambda _: "done", answers_as=f"{model}--1a2b3c4d")
    async with await fake.start() as upstream, client(upstream, default) as asking:
        headers = {"Authorization": "Bearer k", **({"X-Phase": header} if header else {})}
        answer = await asking.post(f"{CHAT}?a=b", json=BODY, headers=headers)
        assert answer.status == 200
        assert (await answer.json())["choices"][0]["message"]["content"] == "done"
        assert answer.headers["x-whetstone-adapter"] == f"{model}--1a2b3c4d"
        assert fake.requests == [{**BODY, "model": model}]
        assert fake.keys == {"Bearer k"}
        assert (await (await asking.get("/v1/models", headers=headers)).json())["data"][0]["id"] == "base"


@pytest.mark.parametrize(
    ("phase", "body", "words"),
    [
        ("dreaming", "{}", "X-Phase is 'dreaming'; use one of strategic, tactical"),
        ("tactical", "{", "the body is no JSON object"),
        ("tactical", "[]", "the body is no JSON object (but list)"),
    ],
)
async def test_what_cannot_be_routed_is_refused_and_not_asked(phase: str, body: str, words: str) -> None:
    fake = FakeModel(name="worker", mind=lambda _: "done")
    async with await fake.start() as upstream, client(upstream) as asking:
        answer = await asking.post(CHAT, data=body, headers={"X-Phase": phase})
        assert (answer.status, words in (await answer.json())["error"]["message"]) == (400, True)
        assert fake.requests == []


async def test_the_servers_own_refusals_pass_and_a_server_that_is_away_is_a_502() -> None:
    fake = FakeModel(name="worker", mind=lambda _: "done", faults=[503])
    async with await fake.start() as upstream, client(upstream, "tactical") as asking:
        assert (await asking.post(CHAT, json=BODY)).status == 503
        await upstream.close()
        answer = await asking.post(CHAT, json=BODY)
        assert (answer.status, (await answer.json())["error"]["type"]) == (502, "router_error")
        assert (await asking.get("/healthz")).status == 200


async def test_a_stream_passes_piece_by_piece_and_one_that_breaks_is_seen_to() -> None:
    go_on = asyncio.Event()

    async def streaming(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: one\n\n")
        await go_on.wait()
        if json.loads(await request.read()).get("breaks"):
            assert request.transport is not None
            request.transport.abort()
        else:
            await response.write(b"data: [DONE]\n\n")
        return response

    app = web.Application()
    app.router.add_post(CHAT, streaming)
    async with TestServer(app) as upstream, client(upstream, "tactical") as asking, ClientSession() as session:
        place = asking.make_url(CHAT)
        async with session.post(place, json={**BODY, "stream": True}) as answer:
            assert await answer.content.readany() == b"data: one\n\n"
            go_on.set()
            assert await answer.content.read() == b"data: [DONE]\n\n"
            assert answer.headers["Content-Type"] == "text/event-stream"
        go_on.clear()
        async with session.post(place, json={**BODY, "stream": True, "breaks": True}) as answer:
            assert await answer.content.readany() == b"data: one\n\n"
            go_on.set()
            with pytest.raises(ClientPayloadError):
                await answer.content.read()


def test_phases_are_read_from_a_variable() -> None:
    assert ROUTER.read_phases("strategic=planner, tactical=worker") == PHASES
    for wrong in ("", "a", "a=", "=b", "a=b,c"):
        with pytest.raises(ValueError, match="give phase=alias"):
            ROUTER.read_phases(wrong)
    with pytest.raises(ValueError, match="DEFAULT_PHASE is 'x'; use one of strategic, tactical"):
        ROUTER.Router("http://m", PHASES, "x")
