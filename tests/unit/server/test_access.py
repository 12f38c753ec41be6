"""API keys and limits as clients see them."""

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from support.adapters import make_adapter
from support.fake_vllm import BASE, FakeVllm
from whetstone_api.access import AccessKey, AccessPolicy
from whetstone_api.pod_state import GUARD_PATH, GuardRoutes
from whetstone_api.vocabulary import TOKEN_HEADER
from whetstone_server.guard.whetstone_guard import access
from whetstone_server.guard.whetstone_guard.asgi import Refused

VERSION = "sql--0123abcd"
ROUTES = GuardRoutes(
    open=True, base=BASE, adapters={"sql": VERSION}, aliases={"prod": VERSION}, versions=[VERSION], pending=["soon"]
)
TOKEN = {TOKEN_HEADER: "s3cret"}
LIMIT = aiohttp.ClientTimeout(total=20)


def key(name: str, value: str, *models: str) -> AccessKey:
    digest = hashlib.sha256(value.encode()).hexdigest()
    return AccessKey(name=name, sha256=digest, models=list(models) or None)


ALL, SQL, STABLE = key("all", "k-all"), key("sql", "k-sql", "sql", "soon", "ghost"), key("stable", "k-prod", "prod")


class Client:
    """Talks to the guarded engine, under rules that a test chooses."""

    def __init__(self, engine: FakeVllm, url: str, session: aiohttp.ClientSession, file: Path) -> None:
        self.engine, self.url, self.session, self.file = engine, url, session, file

    async def rule(self, *keys: AccessKey, required: bool = True, **limits: int) -> None:
        """Write the rules as the kubelet does, and open a new guard that reads them."""
        self.write(AccessPolicy(keys_required=required, keys=list(keys), **limits))
        await self.open()

    def write(self, policy: AccessPolicy) -> None:
        fresh = self.file.with_suffix(".new")
        fresh.write_text(policy.to_json())
        fresh.replace(self.file)

    async def open(self) -> None:
        body = ROUTES.model_dump(by_alias=True)
        async with self.session.put(self.url + GUARD_PATH, json=body, headers=TOKEN) as response:
            assert response.status == 200

    async def ask(
        self, value: str | None = None, *, method: str = "POST", path: str = "/v1/completions", **options: Any
    ) -> tuple[int, Any, Any]:
        """Send a request with a key; return status, JSON body and headers."""
        headers = {} if value is None else {"Authorization": f"Bearer {value}"}
        if method == "POST" and "data" not in options:
            options.setdefault("json", {"model": "sql", "prompt": "x"})
        async with self.session.request(method, self.url + path, headers=headers, **options) as response:
            text = await response.text()
            return response.status, json.loads(text) if text.startswith("{") else text, response.headers


@pytest.fixture
async def client(tmp_path: Path, token_file: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    monkeypatch.setattr(access, "LOOK_SECONDS", 0.0)
    file = tmp_path / "access.json"
    engine = FakeVllm(token_file, file)
    make_adapter(tmp_path / "sql")
    engine.adapters[VERSION] = str(tmp_path / "sql")
    async with engine.served() as url, aiohttp.ClientSession(timeout=LIMIT) as session:
        yield Client(engine, url, session, file)


async def test_no_key_is_asked_for_where_none_is_required(client: Client) -> None:
    await client.rule(required=False)
    assert (await client.ask())[0] == 200
    assert (await client.ask("anything"))[0] == 200


@pytest.mark.parametrize("given", [None, "", "wrong", "k-al", "k-all2", hashlib.sha256(b"k-all").hexdigest()])
async def test_without_a_known_key_is_401_in_the_shape_of_openai(client: Client, given: str | None) -> None:
    await client.rule(ALL, SQL)
    for method, path in (("POST", "/v1/completions"), ("GET", "/v1/models")):
        status, body, headers = await client.ask(given, method=method, path=path)
        assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
        assert (body["error"]["code"], body["error"]["type"]) == ("invalid_api_key", "invalid_request_error")
    assert client.engine.calls == []


async def test_another_scheme_is_not_a_key(client: Client) -> None:
    await client.rule(ALL)
    for given in ("Basic k-all", "k-all", "Bearer"):
        async with client.session.post(client.url + "/v1/completions", headers={"Authorization": given}) as response:
            assert response.status == 401
    async with client.session.get(client.url + "/v1/models", headers={"Authorization": "bearer k-all"}) as response:
        assert response.status == 200


async def test_strangers_are_refused_before_their_body_is_read(client: Client) -> None:
    await client.rule(ALL)
    reader, writer = await asyncio.open_connection("127.0.0.1", client.engine.port)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{")
    async with asyncio.timeout(10):
        assert (await reader.readline()).split()[1] == b"401"
    writer.close()


async def test_each_of_several_keys_opens_and_none_reaches_the_engine(client: Client) -> None:
    await client.rule(ALL, SQL)
    for value in ("k-all", "k-sql"):
        assert (await client.ask(value))[0] == 200
    assert b"authorization" not in client.engine.headers


async def test_a_key_calls_its_own_names_and_their_versions_only(client: Client) -> None:
    await client.rule(ALL, SQL, STABLE)
    expected = {
        "k-all": {"sql": 200, VERSION: 200, "prod": 200, BASE: 200, None: 200, "nobody": 404},
        "k-sql": {
            "sql": 200,
            VERSION: 200,
            "prod": 403,
            BASE: 403,
            None: 403,
            "nobody": 403,
            "ghost": 404,
            "soon": 503,
        },
        "k-prod": {"sql": 403, VERSION: 403, "prod": 200, BASE: 403},
    }
    for value, names in expected.items():
        for name, status in names.items():
            request = {"prompt": "x"} | ({} if name is None else {"model": name})
            answer = await client.ask(value, json=request)
            assert (value, name, answer[0]) == (value, name, status)
    _, body, _ = await client.ask("k-prod", json={"model": "sql", "prompt": "x"})
    assert body["error"]["code"] == "model_not_allowed"
    assert body["error"]["message"] == "the API key 'stable' may not call 'sql'; it may call: prod"
    _, body, _ = await client.ask("k-sql", json={"model": "ghost", "prompt": "x"})
    assert body["error"]["message"] == "the model 'ghost' does not exist"


async def test_the_list_of_models_holds_what_the_key_may_call(client: Client) -> None:
    await client.rule(ALL, SQL, STABLE)
    expected = {"k-all": {BASE, VERSION, "sql", "prod"}, "k-sql": {"sql", VERSION}, "k-prod": {"prod"}}
    for value, names in expected.items():
        _, body, _ = await client.ask(value, method="GET", path="/v1/models")
        assert {card["id"] for card in body["data"]} == names


async def test_probes_and_prometheus_need_no_key_and_the_operator_none_either(client: Client) -> None:
    await client.rule(ALL)
    assert (await client.ask(method="GET", path="/health"))[0] == 200
    assert (await client.ask(method="GET", path="/metrics"))[0] != 401
    async with client.session.get(client.url + "/v1/models", headers=TOKEN) as response:
        assert response.status == 200


async def test_required_keys_of_which_none_is_known_let_nobody_in(client: Client) -> None:
    await client.rule()
    assert (await client.ask("k-all"))[0] == 401


async def test_a_renewed_file_counts_without_a_restart_and_a_broken_one_changes_nothing(client: Client) -> None:
    await client.rule(ALL)
    client.write(AccessPolicy(keys_required=True, keys=[key("all", "k-new")]))
    assert (await client.ask("k-all"))[0] == 401
    assert (await client.ask("k-new"))[0] == 200
    client.file.write_text('{"keysRequired": true, "keys": [{')
    assert (await client.ask("k-new"))[0] == 200
    assert (await client.ask("k-all"))[0] == 401
    client.file.unlink()
    assert (await client.ask("k-new"))[0] == 200


async def test_without_the_file_nobody_passes(client: Client) -> None:
    await client.open()
    status, body, headers = await client.ask("k-all")
    assert (status, body["error"]["code"], headers["retry-after"]) == (503, "starting", "5")


def test_the_file_is_looked_at_once_a_second(tmp_path: Path) -> None:
    now = 0.0
    file = tmp_path / "access.json"
    file.write_text(AccessPolicy(keys_required=True, keys=[ALL]).to_json())
    rules = access.Access(file, clock=lambda: now)
    headers = [(b"authorization", b"Bearer k-all")]
    assert rules.policy().authenticate(headers).name == "all"
    file.write_text(AccessPolicy(keys_required=True, keys=[]).to_json())
    os.utime(file, ns=(1, 1))
    assert rules.policy().authenticate(headers).name == "all"
    now = access.LOOK_SECONDS
    with pytest.raises(Refused):
        rules.policy().authenticate(headers)


async def test_long_bodies_are_413(client: Client) -> None:
    await client.rule(required=False, request_bytes=1024)

    async def chunked() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * 100

    assert (await client.ask(json={"model": "sql", "prompt": "x" * 900}))[0] == 200
    calls = len(client.engine.calls)
    for options in ({"json": {"prompt": "x" * 2000}}, {"data": chunked()}):
        status, body, _ = await client.ask(**options)
        assert (status, body["error"]["code"]) == (413, "body_too_long")
    assert len(client.engine.calls) == calls


async def test_requests_above_the_limit_are_429_until_one_ends(client: Client) -> None:
    await client.rule(required=False, concurrent_requests=2)
    client.engine.hold_answers.clear()
    held = [asyncio.create_task(client.ask()) for _ in range(2)]
    async with asyncio.timeout(10):
        while len(client.engine.calls) < 2:
            await client.open()
    status, body, headers = await client.ask()
    assert (status, body["error"]["code"], headers["retry-after"]) == (429, "too_many_requests", "1")
    assert body["error"]["type"] == "rate_limit_error"
    assert (await client.ask(method="GET", path="/v1/models"))[0] == 200
    client.engine.hold_answers.set()
    assert [answer[0] for answer in await asyncio.gather(*held)] == [200, 200]
    assert (await client.ask())[0] == 200


async def test_a_client_that_leaves_gives_its_place_back(client: Client) -> None:
    await client.rule(required=False, concurrent_requests=1)
    client.engine.hold_answers.clear()
    gone = asyncio.create_task(client.ask())
    async with asyncio.timeout(10):
        while not client.engine.calls:
            await client.open()
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        client.engine.hold_answers.set()
        while (await client.ask())[0] == 429:
            pass
    assert (await client.ask())[0] == 200
