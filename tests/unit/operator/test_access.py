"""A server's Secret: its token, which keys reach the guard, and what is said of those that do not."""

import base64
import hashlib
import json
from types import SimpleNamespace
from typing import Any

import pytest
from unit.operator.objects import model_server
from whetstone_operator.controllers.access import (
    MISSING_POLL_SECONDS,
    POLL_SECONDS,
    Access,
    apply_access,
    require_access,
)
from whetstone_operator.kinds import Kind
from whetstone_operator.runtime.outcome import Waiting
from whetstone_operator.runtime.read_ahead import ReadAhead
from whetstone_operator.runtime.reconcile import Work
from whetstone_operator.runtime.unchanged import holds, stamp

KEYS = [
    {"name": "team", "secretRef": {"name": "keys", "key": "team"}, "models": ["base"]},
    {"name": "all", "secretRef": {"name": "keys", "key": "all"}},
]


class Secrets:
    """The API server's Secrets, and what was written there."""

    def __init__(self, **values: bytes) -> None:
        self.stored: dict[str, dict[str, Any]] = {}
        self.writes: list[str] = []
        if values:
            self.put("keys", **values)

    def put(self, name: str, **values: bytes) -> None:
        data = {key: base64.b64encode(value).decode() for key, value in values.items()}
        self.stored[name] = {"metadata": {"name": name}, "data": data}

    async def get(self, kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
        return self.stored.get(name)

    async def create(self, obj: dict[str, Any]) -> dict[str, Any]:
        self.writes.append("create")
        return self.stored.setdefault(obj["metadata"]["name"], obj)

    async def apply(self, obj: dict[str, Any], *, look: bool, stored: dict[str, Any]) -> dict[str, Any]:
        if holds(stored, stamp(obj)):
            return stored
        self.writes.append("apply")
        self.stored[obj["metadata"]["name"]] = stamp(obj)
        return obj

    def value(self, key: str) -> bytes:
        return base64.b64decode(self.stored["server-access"]["data"][key])

    @property
    def policy(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.value("access.json"))
        return found


async def settle(secrets: Secrets, **spec: Any) -> tuple[Access, float | None]:
    """Settle a server's Secret; return what came of it, and when it is looked at again."""
    server = model_server(**spec)
    looks: list[float] = []
    work = SimpleNamespace(
        resource=server, name=server.metadata.name, namespace=server.metadata.namespace, look_again=looks.append
    )
    typed: Work[Any] = work  # type: ignore[assignment]
    client: Any = secrets
    access = await apply_access(typed, ReadAhead(client))
    assert access.token.encode() == secrets.value("token")
    return access, looks[0] if looks else None


async def apply(secrets: Secrets, **spec: Any) -> tuple[str | None, float | None]:
    """Settle a server's Secret; return what is wrong, and when it is looked at again."""
    access, look = await settle(secrets, **spec)
    return access.problem, look


def sha256(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()


async def test_server_without_keys_asks_for_none_and_looks_at_no_secret() -> None:
    secrets = Secrets()
    assert await apply(secrets, limits={"requestBytes": 4096, "concurrentRequests": 7}) == (None, None)
    assert secrets.policy == {"keysRequired": False, "keys": [], "requestBytes": 4096, "concurrentRequests": 7}


async def test_token_is_made_once_and_stays_when_keys_change() -> None:
    secrets = Secrets(team=b"k-team", all=b"k-all")
    first, _ = await settle(secrets)
    assert len(first.token) == 64
    again, _ = await settle(secrets)
    assert secrets.writes == ["create"]
    changed, _ = await settle(secrets, apiKeys=KEYS)
    assert secrets.writes == ["create", "apply"]
    assert first.token == again.token == changed.token
    assert (await settle(Secrets()))[0].token != first.token


async def test_secret_that_was_made_meanwhile_keeps_its_token() -> None:
    secrets = Secrets()
    first, _ = await settle(secrets)
    made = secrets.stored.pop("server-access")

    class Late(Secrets):
        async def create(self, obj: dict[str, Any]) -> dict[str, Any]:
            self.stored[made["metadata"]["name"]] = made
            return made

    late = Late(team=b"k-team", all=b"k-all")
    second, _ = await settle(late, apiKeys=KEYS)
    assert second.token == first.token
    assert late.writes == ["apply"]


@pytest.mark.parametrize("damaged", [{}, *({"token": value} for value in (b"", b"a b", b"a\nb", b"\xff"))])
async def test_a_token_that_cannot_be_sent_is_made_anew(damaged: dict[str, bytes]) -> None:
    secrets = Secrets()
    secrets.put("server-access", **damaged)
    made, _ = await settle(secrets)
    assert len(made.token) == 64
    assert secrets.writes == ["apply"]


async def test_token_of_an_earlier_operator_is_taken_over_and_can_be_rotated() -> None:
    secrets = Secrets()
    secrets.put("server-token", token=b"of-running-pods")
    secrets.put("server-access", **{"access.json": b"{}", "runner-key": b"r"})
    assert (await settle(secrets))[0].token == "of-running-pods"
    del secrets.stored["server-access"]
    assert (await settle(secrets))[0].token != "of-running-pods"


async def test_keys_reach_the_guard_as_hashes_and_are_read_again() -> None:
    secrets = Secrets(team=b"k-team\n", all=b"k-all")
    assert await apply(secrets, apiKeys=KEYS) == (None, POLL_SECONDS)
    first, second, runner = secrets.policy["keys"]
    assert first == {"name": "team", "sha256": sha256("k-team"), "models": ["base"]}
    assert second == {"name": "all", "sha256": sha256("k-all")}
    assert runner["name"] == "whetstone-benchmark"
    assert secrets.policy["keysRequired"] is True


@pytest.mark.parametrize(
    ("values", "words", "known"),
    [
        ({}, "spec.apiKeys[team].secretRef.name: Secret keys does not exist in namespace {ns}; create it", []),
        (
            {"team": b"k-team"},
            "spec.apiKeys[all].secretRef.key: Secret keys has no key all (its keys: team); add it",
            ["team"],
        ),
        *(
            (
                {"team": b"k-team", "all": unusable},
                (
                    "spec.apiKeys[all].secretRef.key: key all of Secret keys must be printable ASCII without spaces;"
                    " replace it"
                ),
                ["team"],
            )
            for unusable in (b"", b" \n", b"two words", "Schlüssel".encode(), b"a\nb")
        ),
    ],
)
async def test_a_missing_key_is_named_and_keeps_no_other_key_out(
    values: dict[str, bytes], words: str, known: list[str]
) -> None:
    secrets = Secrets(**values)
    problem, _ = await apply(secrets, apiKeys=KEYS)
    assert problem == words.format(ns=model_server().metadata.namespace)
    assert [key["name"] for key in secrets.policy["keys"]] == [*known, "whetstone-benchmark"]
    with pytest.raises(Waiting, match="apiKeys") as raised:
        require_access(problem)
    assert raised.value.reason == "SecretNotFound"
    assert MISSING_POLL_SECONDS < POLL_SECONDS
    require_access(None)
