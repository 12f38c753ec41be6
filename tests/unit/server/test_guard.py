"""The guard as clients see it: closed at first, an allow-list, names resolved, answers named."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client import REGISTRY
from support import engine_routes
from support.adapters import make_adapter
from support.fake_vllm import BASE, FakeVllm
from whetstone_api.pod_state import (
    DRAIN_PATH,
    ENGINE_PORT,
    GUARD_PATH,
    QUIET_PATH,
    AliasShare,
    GuardRoutes,
    GuardState,
)
from whetstone_api.vocabulary import ADAPTER_HEADER, ALONE_HEADER, SESSION_HEADER, TOKEN_HEADER
from whetstone_server.guard.whetstone_guard import admission, guard, leave
from whetstone_server.guard.whetstone_guard.answers import ADAPTER_HEADER as GUARD_ADAPTER_HEADER
from whetstone_server.guard.whetstone_guard.splits import SESSION_HEADER as GUARD_SESSION_HEADER
from whetstone_server.guard.whetstone_guard.table import route_table
from whetstone_server.install import install_guard

TOKEN = {TOKEN_HEADER: "s3cret"}
ALONE = {**TOKEN, ALONE_HEADER: "1"}
VERSION = "sql--0123abcd"
ROUTES = GuardRoutes(
    open=True, base=BASE, adapters={"sql": VERSION}, aliases={"prod": VERSION}, versions=[VERSION], pending=["soon"]
)


class Client:
    """Talks to the guarded engine."""

    def __init__(self, engine: FakeVllm, url: str, session: aiohttp.ClientSession) -> None:
        self.engine, self.url, self.session = engine, url, session

    async def route(self, routes: GuardRoutes = ROUTES) -> GuardState:
        body = routes.model_dump(by_alias=True)
        async with self.session.put(self.url + GUARD_PATH, json=body, headers=TOKEN) as response:
            assert response.status == 200
            return GuardState.model_validate(await response.json())

    async def be_fragile(self) -> None:
        """Have an engine that measurements must be alone with."""
        self.engine.fragile = True
        self.engine.restart()
        await self.route()

    async def call(self, method: str, path: str, **options: Any) -> tuple[int, Any, aiohttp.ClientResponse]:
        async with self.session.request(method, self.url + path, **options) as response:
            text = await response.text()
            return response.status, json.loads(text) if text.startswith("{") else text, response


@pytest.fixture
async def client(tmp_path: Path, token_file: Path) -> AsyncIterator[Client]:
    engine = FakeVllm(token_file)
    make_adapter(tmp_path / "sql")
    engine.adapters[VERSION] = str(tmp_path / "sql")
    async with engine.served() as url, aiohttp.ClientSession() as session:
        yield Client(engine, url, session)


async def test_starts_closed_but_for_the_kubelet(client: Client) -> None:
    status, body, response = await client.call("POST", "/v1/chat/completions", json={"model": BASE})
    assert (status, body["error"]["code"]) == (503, "starting")
    assert response.headers["retry-after"] == "5"
    assert (await client.call("GET", "/v1/models"))[0] == 503
    assert (await client.call("GET", "/health"))[0] == 200


async def test_administration_needs_the_token(client: Client) -> None:
    await client.route()
    load = {"lora_name": "x", "lora_path": client.engine.adapters[VERSION]}
    assert (await client.call("POST", "/v1/load_lora_adapter", json=load))[0] == 403
    assert (await client.call("POST", "/v1/load_lora_adapter", json=load, headers={TOKEN_HEADER: "no"}))[0] == 401
    assert "x" not in client.engine.adapters
    assert (await client.call("POST", "/v1/load_lora_adapter", json=load, headers=TOKEN))[0] == 200
    assert "x" in client.engine.adapters


@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_guard_itself_needs_the_token(client: Client, method: str) -> None:
    assert (await client.call(method, GUARD_PATH, json=ROUTES.model_dump()))[0] == 403


async def until_in_flight(client: Client) -> None:
    async with asyncio.timeout(10):
        while (await client.route()).in_flight != {VERSION: 1}:
            pass


async def test_draining_guard_answers_and_closes_each_connection(client: Client) -> None:
    await client.route()
    assert (await client.call("POST", DRAIN_PATH))[0] == 403
    _, _, before = await client.call("GET", "/v1/models")
    assert before.headers.get("connection") != "close"
    assert (await client.call("POST", DRAIN_PATH, headers=TOKEN))[0] == 200
    status, _, after = await client.call("GET", "/v1/models")
    assert (status, after.headers["connection"]) == (200, "close")
    refused = (await client.call("POST", "/v1/load_lora_adapter"))[2]
    assert refused.headers["connection"] == "close"


async def test_answer_under_way_when_the_drain_begins_closes_its_connection(client: Client) -> None:
    await client.route()
    client.engine.hold_answers.clear()
    request = {"model": VERSION, "prompt": "x"}
    under_way = asyncio.create_task(client.call("POST", "/v1/completions", json=request))
    await until_in_flight(client)
    assert (await client.call("POST", DRAIN_PATH, headers=TOKEN))[0] == 200
    client.engine.hold_answers.set()
    status, _, response = await under_way
    assert (status, response.headers["connection"]) == (200, "close")


@pytest.mark.parametrize(("method", "path"), sorted(engine_routes.REFUSED))
async def test_every_other_route_of_the_engine_is_refused(client: Client, method: str, path: str) -> None:
    await client.route()
    target = path.replace("{", "").replace("}", "") + ("/" if method == "*" else "")
    assert await raw_request(client.engine.port, target, "GET" if method == "*" else method) == 403
    assert client.engine.calls == []


def test_the_allowed_routes_are_those_that_were_decided_about() -> None:
    assert admission.PLAIN | admission.INFERENCE == engine_routes.ALLOWED | engine_routes.OTHER_TASKS
    assert not engine_routes.ALLOWED & set(engine_routes.REFUSED)


async def test_the_engine_tells_its_route_table_to_the_operator_only(client: Client) -> None:
    class Route:
        def __init__(self, path: str, *methods: str) -> None:
            self.path, self.methods = path, set(methods)

    class WebSocketRoute:
        path = "/live"

    class Application:
        routes = (Route("/b", "POST", "GET"), Route("/mounted"), WebSocketRoute())

    scope = {"app": Application()}
    assert route_table(scope) == [["*", "/mounted"], ["GET", "/b"], ["POST", "/b"], ["WEBSOCKET", "/live"]]
    assert (await client.call("GET", guard.TABLE_PATH))[0] == 403
    status, _, response = await client.call("GET", guard.TABLE_PATH, headers=TOKEN)
    assert (status, await response.json()) == (200, [])


async def test_held_clients_wait_and_go_on_when_the_hold_ends(client: Client) -> None:
    await client.be_fragile()
    client.engine.adapters[VERSION] = "x"
    assert (await client.call("POST", QUIET_PATH, json={"seconds": 30}))[0] == 403
    held = await client.call("POST", QUIET_PATH, json={"seconds": 30}, headers=TOKEN)
    assert held[1] == {"needed": True, "inFlight": 0}
    waiting = asyncio.create_task(client.call("POST", "/v1/completions", json={"model": VERSION, "prompt": "x"}))
    again = await client.call("POST", QUIET_PATH, json={"seconds": 30}, headers=TOKEN)
    assert (again[1]["inFlight"], waiting.done()) == (0, False)
    await client.call("POST", QUIET_PATH, json={"seconds": 0}, headers=TOKEN)
    assert (await waiting)[0] == 200


async def test_hold_ends_by_itself(client: Client) -> None:
    await client.be_fragile()
    await client.call("POST", QUIET_PATH, json={"seconds": 0.05}, headers=TOKEN)
    assert (await client.call("POST", "/v1/completions", json={"model": BASE, "prompt": "x"}))[0] == 200


MEASUREMENT = {"model": BASE, "prompt": [[5, 11, 7]], "prompt_logprobs": 0, "max_tokens": 1}


async def test_clients_wait_for_a_measurement_that_outlasts_its_hold(client: Client) -> None:
    await client.be_fragile()
    client.engine.hold_answers.clear()
    await client.call("POST", QUIET_PATH, json={"seconds": 0.1}, headers=TOKEN)
    measuring = asyncio.create_task(client.call("POST", "/v1/completions", json=MEASUREMENT, headers=ALONE))
    asking = asyncio.create_task(client.call("POST", "/v1/completions", json={"model": BASE, "prompt": "x"}))
    # The hold ends meanwhile.
    await asyncio.wait([measuring, asking], timeout=0.5)
    bodies = [body for _, path, body in client.engine.calls if path == "/v1/completions"]
    assert bodies == [MEASUREMENT]
    client.engine.hold_answers.set()
    assert [(await one)[0] for one in (measuring, asking)] == [200, 200]
    assert not client.engine.ended


@pytest.mark.parametrize("seconds", [None, 0, 0.01], ids=["never held", "let go", "run out"])
async def test_measurement_without_a_hold_is_refused_where_it_must_be_alone(
    client: Client, seconds: float | None
) -> None:
    await client.be_fragile()
    if seconds is not None:
        await client.call("POST", QUIET_PATH, json={"seconds": seconds}, headers=TOKEN)
        await asyncio.sleep(2 * seconds)
    before = list(client.engine.calls)
    status, body, _ = await client.call("POST", "/v1/completions", json=MEASUREMENT, headers=ALONE)
    assert (status, body["error"]["code"]) == (409, "hold_over")
    assert client.engine.calls == before


async def test_measurement_beside_a_client_is_refused_where_it_must_be_alone(client: Client) -> None:
    await client.be_fragile()
    client.engine.adapters[VERSION] = "x"
    client.engine.hold_answers.clear()
    asking = asyncio.create_task(client.call("POST", "/v1/completions", json={"model": VERSION, "prompt": "x"}))
    await until_in_flight(client)
    await client.call("POST", QUIET_PATH, json={"seconds": 30}, headers=TOKEN)
    assert (await client.call("POST", "/v1/completions", json=MEASUREMENT, headers=ALONE))[0] == 409
    client.engine.hold_answers.set()
    assert (await asking)[0] == 200


@pytest.mark.parametrize("body", [{}, {"seconds": "x"}, {"seconds": -1}, {"seconds": None}])
async def test_wrong_hold_is_refused(client: Client, body: dict[str, Any]) -> None:
    assert (await client.call("POST", QUIET_PATH, json=body, headers=TOKEN))[0] == 400


async def raw_request(port: int, target: str, method: str = "POST") -> int:
    """Send a request line as it is, without a client library that tidies paths."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        f"{method} {target} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Type: application/json\r\n"
        "Connection: close\r\n\r\n{}".encode()
    )
    status = int((await reader.readline()).split()[1])
    writer.close()
    return status


@pytest.mark.parametrize(
    "target",
    [
        "/adapters",
        "/invocations",
        "/docs",
        "/openapi.json",
        "/ping",
        "//v1/completions",
        "/v1//completions",
        "/v1/completions/",
        "/v1/%63ompletions",
        "/v1/completions%2f..%2fload_lora_adapter",
        "/v1/../v1/load_lora_adapter",
        "/V1/completions",
        "/v1/load_lora_adapter?x=/v1/completions",
        "/v1/completions;x",
        "/v1/completions%00",
        "/v1/./completions",
        "/v1/completions/.",
        "/./v1/completions",
        "/v1/foo/../completions",
        "/v1/%2e%2e/adapters",
        "/v1%2fcompletions",
        "/v1/completions%20",
        "/v1/completions%3fx",
        "/v1\\completions",
        "http://x/adapters",
        "/whetstone/guard",
    ],
)
async def test_everything_off_the_list_is_refused_and_never_reaches_the_engine(client: Client, target: str) -> None:
    await client.route()
    assert await raw_request(client.engine.port, target) == 403
    assert client.engine.calls == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/health"),
        ("GET", "/v1/models"),
        ("GET", "/metrics"),
        ("GET", "/version"),
        ("POST", "/v1/chat/completions"),
        ("POST", "/v1/completions"),
        ("POST", "/v1/embeddings"),
        ("POST", "/tokenize"),
        ("POST", "/detokenize"),
    ],
)
async def test_everything_on_the_list_reaches_the_engine(client: Client, method: str, path: str) -> None:
    await client.route()
    body = {"json": {"model": "sql", "prompt": "x"}} if method == "POST" else {}
    assert (await client.call(method, f"{path}?a=/v1/load_lora_adapter", **body))[0] != 403
    assert [call[:2] for call in client.engine.calls] == [(method, path)]


async def test_body_without_a_length_reaches_the_engine_whole(client: Client) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for piece in (b'{"model":"sql",', b'"prompt":"x"}'):
            yield piece

    await client.route()
    headers = {"Content-Type": "application/json"}
    assert (await client.call("POST", "/v1/completions", data=pieces(), headers=headers))[0] == 200
    assert client.engine.calls == [("POST", "/v1/completions", {"model": VERSION, "prompt": "x"})]
    # Two statements about its length are how requests are smuggled.
    assert b"content-length" in client.engine.headers
    assert b"transfer-encoding" not in client.engine.headers


async def test_token_is_read_anew_and_without_one_nobody_is_the_operator(client: Client) -> None:
    await client.route()
    file = client.engine._token_file
    file.write_text("renewed")
    assert (await client.call("GET", GUARD_PATH, headers=TOKEN))[0] == 401
    assert (await client.call("GET", GUARD_PATH, headers={TOKEN_HEADER: "renewed"}))[0] == 200
    file.write_text("\n")
    assert (await client.call("GET", GUARD_PATH, headers={TOKEN_HEADER: ""}))[0] == 401
    file.unlink()
    assert (await client.call("GET", GUARD_PATH, headers={TOKEN_HEADER: ""}))[0] == 401


async def test_a_wrong_method_is_off_the_list(client: Client) -> None:
    await client.route()
    assert (await client.call("DELETE", "/v1/models"))[0] == 403
    assert (await client.call("GET", "/v1/completions"))[0] == 403


async def test_websockets_are_refused(client: Client) -> None:
    await client.route()
    with pytest.raises(aiohttp.WSServerHandshakeError):
        await client.session.ws_connect(client.url + "/v1/realtime")


@pytest.mark.parametrize(
    ("asked", "served"), [(BASE, BASE), ("sql", VERSION), ("prod", VERSION), (VERSION, VERSION), (None, BASE)]
)
async def test_names_resolve_and_the_answer_tells_who_answered(client: Client, asked: str | None, served: str) -> None:
    await client.route()
    request = {"prompt": "x"} | ({} if asked is None else {"model": asked})
    status, body, response = await client.call("POST", "/v1/completions", json=request)
    assert status == 200
    assert response.headers[ADAPTER_HEADER] == served
    assert body["choices"][0]["text"] == f"from {served}"
    assert body["model"] == (asked or BASE)


async def test_chat_answers_carry_the_requested_name(client: Client) -> None:
    await client.route()
    request = {"model": "prod", "messages": [{"role": "user", "content": f'say "model":"{VERSION}"'}]}
    status, body, response = await client.call("POST", "/v1/chat/completions", json=request)
    assert (status, response.headers[ADAPTER_HEADER], body["model"]) == (200, VERSION, "prod")
    # Only the field is renamed, not what the model says.
    assert body["choices"][0]["message"]["content"] == f"from {VERSION}"
    _, text, _ = await client.call("POST", "/v1/chat/completions", json={**request, "stream": True})
    events = [json.loads(line.removeprefix("data: ")) for line in text.split("\n\n")[:-2]]
    assert [event["model"] for event in events] == ["prod", "prod"]
    assert events[1]["choices"][0]["delta"]["content"] == f"from {VERSION}"


@pytest.mark.parametrize("chunks", [1, 3, 7, 50, 400])
async def test_streams_carry_the_requested_name_however_they_are_cut(client: Client, chunks: int) -> None:
    await client.route()
    client.engine.stream_chunks = chunks
    request = {"model": "prod", "prompt": "x", "stream": True}
    status, text, response = await client.call("POST", "/v1/completions", json=request)
    assert status == 200
    assert response.headers[ADAPTER_HEADER] == VERSION
    events = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert events.pop() == "[DONE]"
    assert [json.loads(event)["model"] for event in events] == ["prod"] * 2


async def test_unknown_names_are_404_with_those_that_are_known(client: Client) -> None:
    await client.route()
    status, body, _ = await client.call("POST", "/v1/completions", json={"model": "gpt", "prompt": "x"})
    assert status == 404
    assert body["error"]["message"] == f"the model 'gpt' does not exist; known: prod, sql, {VERSION}, {BASE}"


async def test_a_loaded_version_that_was_not_probed_gets_no_request(client: Client) -> None:
    client.engine.adapters["sql--ffffffff"] = client.engine.adapters[VERSION]
    await client.route()
    assert (await client.call("POST", "/v1/completions", json={"model": "sql--ffffffff", "prompt": "x"}))[0] == 404


async def test_a_pending_name_asks_for_another_try(client: Client) -> None:
    await client.route()
    status, body, response = await client.call("POST", "/v1/completions", json={"model": "soon", "prompt": "x"})
    assert (status, body["error"]["code"], response.headers["retry-after"]) == (503, "model_pending", "1")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"model":"sql","prompt":"x","prompt_logprobs":0}', "prompt_logprobs is not served"),
        (b'{"model":"sql","prompt":"x","echo":true,"logprobs":1}', "echo together with logprobs"),
        (b'{"model":"sql","prompt_embeds":"AA=="}', "prompt_embeds is not served"),
        (b'{"model":"sql","prompt":"x","kv_transfer_params":{}}', "kv_transfer_params is not served"),
        (b'{"model":"sql","prompt":"x","ec_transfer_params":{}}', "ec_transfer_params is not served"),
        (b'{"model":"sql","prompt":"x","n":129}', "n must be at most 128"),
        (b'{"model":7}', "model must be a string"),
        (b"[1]", "must be a JSON object"),
        (b"not json", "not JSON"),
        (b'{"temperature": NaN}', "NaN is not a JSON value"),
        (b"[" * 100_000, "not JSON"),
    ],
)
async def test_bodies_that_can_harm_are_400(client: Client, body: bytes, words: str) -> None:
    await client.route()
    status, answer, _ = await client.call(
        "POST", "/v1/completions", data=body, headers={"Content-Type": "application/json"}
    )
    assert status == 400
    assert words in answer["error"]["message"]
    assert client.engine.calls == []


async def test_a_second_model_key_cannot_be_smuggled(client: Client) -> None:
    await client.route()
    body = b'{"model":"tiny","prompt":"x","model":"sql"}'
    _, answer, response = await client.call(
        "POST", "/v1/completions", data=body, headers={"Content-Type": "application/json"}
    )
    assert response.headers[ADAPTER_HEADER] == VERSION
    assert answer["choices"][0]["text"] == f"from {VERSION}"


async def test_model_list_shows_what_clients_may_use(client: Client) -> None:
    client.engine.adapters["hidden--ffffffff"] = "/elsewhere"
    await client.route()
    _, body, _ = await client.call("GET", "/v1/models")
    cards = {card["id"]: card for card in body["data"]}
    assert set(cards) == {BASE, VERSION, "sql", "prod"}
    assert (cards["prod"]["root"], cards["prod"]["parent"]) == (VERSION, BASE)


async def test_state_counts_requests_in_flight(client: Client) -> None:
    await client.route()
    client.engine.hold_answers.clear()
    request = asyncio.create_task(client.call("POST", "/v1/completions", json={"model": "sql", "prompt": "x"}))
    await until_in_flight(client)
    client.engine.hold_answers.set()
    await request
    assert (await client.route()).in_flight == {}


SPLIT = ROUTES.model_copy(
    update={
        "splits": {
            "ab": [
                AliasShare(adapter="sql", served_name=VERSION, weight=1),
                AliasShare(adapter=BASE, served_name=BASE, weight=1),
            ]
        }
    }
)


async def answering(client: Client, *, user: str | None = None, session: str | None = None) -> str:
    """Return which version answers the alias `ab`."""
    body = {"model": "ab", "prompt": "x"} | ({"user": user} if user else {})
    headers = {SESSION_HEADER: session} if session else {}
    status, answer, response = await client.call("POST", "/v1/completions", json=body, headers=headers)
    assert (status, answer["model"]) == (200, "ab")
    assert answer["choices"][0]["text"] == f"from {response.headers[ADAPTER_HEADER]}"
    return response.headers[ADAPTER_HEADER]


async def test_alias_with_several_targets_answers_a_session_always_alike(client: Client) -> None:
    assert (await client.route(SPLIT)).routes == SPLIT
    by_session = {one: await answering(client, session=one) for one in "abcdefgh"}
    assert set(by_session.values()) == {VERSION, BASE}
    assert {one: await answering(client, session=one) for one in "abcdefgh"} == by_session
    assert {one: await answering(client, user=one) for one in "abcdefgh"} == by_session
    assert {one: await answering(client, session=one, user="z") for one in "abcdefgh"} == by_session
    assert {await answering(client) for _ in range(64)} == {VERSION, BASE}
    _, body, _ = await client.call("GET", "/v1/models")
    assert "ab" in {card["id"] for card in body["data"]}


async def test_target_that_this_replica_does_not_hold_asks_for_another_try(client: Client) -> None:
    await client.route(SPLIT.model_copy(update={"versions": []}))
    answers = [
        await client.call(
            "POST", "/v1/completions", json={"model": "ab", "prompt": "x"}, headers={SESSION_HEADER: session}
        )
        for session in "abcdefgh"
    ]
    assert {(status, response.headers.get(ADAPTER_HEADER)) for status, _, response in answers} == {
        (200, BASE),
        (503, None),
    }


async def test_request_in_flight_ends_on_the_target_that_it_started_on(client: Client) -> None:
    await client.route(SPLIT)
    client.engine.hold_answers.clear()
    request = asyncio.create_task(client.call("POST", "/v1/completions", json={"model": "prod", "prompt": "x"}))
    async with asyncio.timeout(10):
        while (await client.route(SPLIT)).in_flight != {VERSION: 1}:
            pass
    await client.route(ROUTES.model_copy(update={"aliases": {"prod": BASE}}))
    client.engine.hold_answers.set()
    _, body, response = await request
    assert (response.headers[ADAPTER_HEADER], body["choices"][0]["text"]) == (VERSION, f"from {VERSION}")


async def test_requests_to_an_alias_are_counted_by_what_answers(client: Client) -> None:
    def count(served: str) -> float:
        return REGISTRY.get_sample_value("whetstone_alias_requests_total", {"alias": "ab", "served": served}) or 0.0

    await client.route(SPLIT)
    before = {served: count(served) for served in (VERSION, BASE)}
    for session in "abcdefgh":
        before[await answering(client, session=session)] += 1
    assert {served: count(served) for served in before} == before


@pytest.mark.parametrize(
    ("path", "asked", "got"),
    [
        ("chat/completions", {}, {"temperature": 0.7, "top_p": 0.9, "max_tokens": 32}),
        ("completions", {"temperature": None}, {"temperature": 0.7, "top_p": 0.9, "max_tokens": 32}),
        ("completions", {"temperature": 0, "max_tokens": 99}, {"temperature": 0, "top_p": 0.9, "max_tokens": 99}),
        (
            "chat/completions",
            {"max_completion_tokens": 99, "top_p": 1},
            {"temperature": 0.7, "top_p": 1, "max_completion_tokens": 99},
        ),
        ("embeddings", {}, {}),
    ],
)
async def test_sampling_that_a_request_leaves_out_is_the_servers(
    client: Client, path: str, asked: dict[str, Any], got: dict[str, Any]
) -> None:
    sampling: dict[str, int | float] = {"temperature": 0.7, "top_p": 0.9, "max_tokens": 32}
    await client.route(ROUTES.model_copy(update={"sampling": sampling}))
    await client.call("POST", f"/v1/{path}", json={"model": "sql", "prompt": "x", **asked})
    assert client.engine.calls == [("POST", f"/v1/{path}", {"model": VERSION, "prompt": "x", **got})]


async def test_wrong_routes_are_refused_and_the_old_ones_stay(client: Client) -> None:
    await client.route()
    weightless = {"a": [{"adapter": "b", "servedName": "b", "weight": 0}]}
    for wrong in (
        {"open": "yes", "base": "b"},
        {"open": True, "base": "b", "aliases": {"a": 1}},
        {"open": True},
        {"open": True, "base": "b", "splits": {"a": [{"adapter": "b"}]}},
        {"open": True, "base": "b", "splits": weightless},
        {"open": True, "base": "b", "splits": ["a"]},
        {"open": True, "base": "b", "sampling": {"temperature": "1"}},
    ):
        assert (await client.call("PUT", GUARD_PATH, json=wrong, headers=TOKEN))[0] == 400
    _, state, _ = await client.call("GET", GUARD_PATH, headers=TOKEN)
    assert GuardState.model_validate(state).routes == ROUTES


async def test_series_have_known_names_only(client: Client) -> None:
    def total(served: str, code: str) -> float:
        return REGISTRY.get_sample_value("whetstone_requests_total", {"served": served, "code": code}) or 0.0

    def tokens() -> float:
        return REGISTRY.get_sample_value("whetstone_tokens_total", {"served": VERSION, "kind": "completion"}) or 0.0

    await client.route()
    before = (total(VERSION, "200"), total("other", "404"), tokens())
    request = {"model": "prod", "prompt": "x"}
    for stream in ({}, {"stream": True, "stream_options": {"include_usage": True}}):
        await client.call("POST", "/v1/completions", json=request | stream)
    await client.call("POST", "/v1/completions", json={"model": "made-up", "prompt": "x"})
    assert (total(VERSION, "200"), total("other", "404"), tokens()) == (before[0] + 2, before[1] + 1, before[2] + 4)
    assert REGISTRY.get_sample_value("whetstone_requests_total", {"served": "made-up", "code": "404"}) is None


def test_guard_and_contract_name_the_same_things() -> None:
    assert guard.GUARD_PATH == GUARD_PATH
    assert guard.DRAIN_PATH == leave.DRAIN_PATH == DRAIN_PATH
    assert guard.TOKEN_HEADER.decode() == leave.TOKEN_HEADER == TOKEN_HEADER
    assert leave.PORT == ENGINE_PORT
    assert GUARD_ADAPTER_HEADER.decode() == ADAPTER_HEADER
    assert GUARD_SESSION_HEADER.decode() == SESSION_HEADER
    assert guard.ALONE_HEADER.decode() == ALONE_HEADER


def test_installed_guard_imports_alone(tmp_path: Path) -> None:
    install_guard(tmp_path / "root")
    install_guard(tmp_path / "root")
    code = (
        "import sys; sys.modules['prometheus_client'] = None; sys.modules['pydantic'] = None;"
        "import whetstone_guard; whetstone_guard.Guard(None); print(whetstone_guard.__file__)"
    )
    result = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(tmp_path / "root")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.startswith(str(tmp_path))
