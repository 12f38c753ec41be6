"""Prometheus series of the guard."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client import REGISTRY
from support.adapters import make_adapter
from support.fake_vllm import BASE, FakeVllm
from whetstone_api.pod_state import GUARD_PATH, GuardRoutes
from whetstone_api.vocabulary import TOKEN_HEADER
from whetstone_server.guard.whetstone_guard import measures
from whetstone_server.guard.whetstone_guard.answers import Answer

VERSION = "counted--0123abcd"
ROUTES = GuardRoutes(open=True, base=BASE, adapters={"counted": VERSION}, versions=[VERSION])
CONTINUOUS = {"include_usage": True, "continuous_usage_stats": True}


def sample(name: str, **labels: str) -> float:
    """Return a sample's value, 0 while it is absent."""
    return REGISTRY.get_sample_value(f"whetstone_{name}", labels) or 0.0


def tokens() -> tuple[float, float]:
    return (
        sample("tokens_total", served=VERSION, kind="prompt"),
        sample("tokens_total", served=VERSION, kind="completion"),
    )


class Client:
    """Talks to the guarded engine."""

    def __init__(self, engine: FakeVllm, url: str, session: aiohttp.ClientSession) -> None:
        self.engine, self.url, self.session = engine, url, session

    async def route(self, routes: GuardRoutes = ROUTES) -> None:
        body = routes.model_dump(by_alias=True)
        headers = {TOKEN_HEADER: "s3cret"}
        async with self.session.put(self.url + GUARD_PATH, json=body, headers=headers) as response:
            assert response.status == 200

    async def ask(self, path: str = "/v1/completions", **body: Any) -> str:
        request = {"model": "counted", "prompt": "x", "messages": [], **body}
        async with self.session.post(self.url + path, json=request) as response:
            return await response.text()


@pytest.fixture
async def client(tmp_path: Path, token_file: Path) -> AsyncIterator[Client]:
    measures.forget(VERSION)
    engine = FakeVllm(token_file)
    make_adapter(tmp_path / "counted")
    engine.adapters[VERSION] = str(tmp_path / "counted")
    async with engine.served() as url, aiohttp.ClientSession() as session:
        client = Client(engine, url, session)
        await client.route()
        yield client


def events(text: str) -> list[dict[str, Any]]:
    *lines, end, rest = text.split("\n\n")
    assert (end, rest) == ("data: [DONE]", "")
    return [json.loads(line.removeprefix("data: ")) for line in lines]


@pytest.mark.parametrize("model", ["counted", VERSION])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize("chunks", [1, 3, 7, 50, 400])
async def test_tokens_of_a_stream_count_though_its_client_did_not_ask_for_them(
    client: Client, path: str, chunks: int, model: str
) -> None:
    client.engine.stream_chunks = chunks
    plain = events(await client.ask(path, model=model, stream=True))
    assert [event["model"] for event in plain] == [model] * 2
    assert all("usage" not in event for event in plain)
    assert tokens() == (3, 2)
    asked = events(await client.ask(path, model=model, stream=True, stream_options={"include_usage": True}))
    assert [event["model"] for event in asked] == [model] * 3
    assert asked[-1]["usage"]["completion_tokens"] == 2
    assert tokens() == (6, 4)


async def test_what_a_client_says_of_usage_stays_where_it_is_no_stream(client: Client) -> None:
    assert json.loads(await client.ask())["usage"]["total_tokens"] == 5
    assert "stream_options" not in client.engine.calls[-1][2]
    assert tokens() == (3, 2)


async def test_usage_told_in_every_event_counts_once() -> None:
    async def send(message: Any) -> None:
        pass

    measures.forget(VERSION)
    answer = Answer(send, requested=VERSION, served=VERSION)
    headers = [(b"content-type", b"text/event-stream")]
    await answer({"type": "http.response.start", "status": 200, "headers": headers})
    for count in (1, 2, 3):
        event = {"choices": [{}], "usage": {"prompt_tokens": 4, "completion_tokens": count}}
        body = f"data: {json.dumps(event, separators=(',', ':'))}\n\n".encode()
        await answer({"type": "http.response.body", "body": body, "more_body": True})
    await answer({"type": "http.response.body", "body": b"", "more_body": False})
    assert tokens() == (4, 3)


async def test_time_to_the_first_event_counts_once_a_stream() -> None:
    async def send(message: Any) -> None:
        pass

    now = 10.0
    measures.forget(VERSION)
    answer = Answer(send, requested=VERSION, served=VERSION, clock=lambda: now)
    headers = [(b"content-type", b"text/event-stream")]
    await answer({"type": "http.response.start", "status": 200, "headers": headers})
    await answer({"type": "http.response.body", "body": b"", "more_body": True})
    for later in (12.0, 17.0):
        now = later
        await answer({"type": "http.response.body", "body": b"data: {}\n\n", "more_body": True})
    assert sample("time_to_first_token_seconds_count", served=VERSION) == 1
    assert sample("time_to_first_token_seconds_sum", served=VERSION) == 2


async def test_series_of_a_version_go_with_it(client: Client) -> None:
    await client.ask(stream=True)
    assert sample("requests_total", served=VERSION, code="200") == 1
    assert sample("request_seconds_count", served=VERSION) == 1
    assert sample("time_to_first_token_seconds_count", served=VERSION) == 1
    base = sample("requests_total", served=BASE, code="200")
    await client.ask(model=BASE)
    await client.route(GuardRoutes(open=True, base=BASE))
    labels = {label for family in REGISTRY.collect() for one in family.samples for label in one.labels.values()}
    assert VERSION not in labels
    assert sample("requests_total", served=BASE, code="200") == base + 1
