"""Which keys reach the guard, and what is said of those that do not."""

import base64
import hashlib
import json
from types import SimpleNamespace
from typing import Any

import pytest
from unit.operator.objects import model_server
from whetstone_operator.controllers.access import MISSING_POLL_SECONDS, POLL_SECONDS, apply_access, require_access
from whetstone_operator.kinds import Kind
from whetstone_operator.runtime.outcome import Waiting
from whetstone_operator.runtime.reconcile import Work

KEYS = [
    {"name": "team", "secretRef": {"name": "keys", "key": "team"}, "models": ["base"]},
    {"name": "all", "secretRef": {"name": "keys", "key": "all"}},
]


class Secrets:
    """The API server's Secrets."""

    def __init__(self, **values: bytes) -> None:
        data = {name: base64.b64encode(value).decode() for name, value in values.items()}
        self.stored: dict[str, dict[str, Any]] = {"keys": {"data": data}} if values else {}

    async def get(self, kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
        return self.stored.get(name)

    async def apply(self, obj: dict[str, Any], *, look: bool) -> dict[str, Any]:
        self.stored[obj["metadata"]["name"]] = obj
        return obj

    @property
    def policy(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(base64.b64decode(self.stored["server-access"]["data"]["access.json"]))
        return found


async def apply(secrets: Secrets, **spec: Any) -> tuple[str | None, float | None]:
    """Apply a server's rules; return what is wrong, and when it is looked at again."""
    server = model_server(**spec)
    looks: list[float] = []
    work = SimpleNamespace(
        resource=server,
        namespace=server.metadata.namespace,
        new=True,
        context=SimpleNamespace(kube=secrets),
        look_again=looks.append,
    )
    typed: Work[Any] = work  # type: ignore[assignment]
    problem = await apply_access(typed, token="t")
    return problem, looks[0] if looks else None


def sha256(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()


async def test_server_without_keys_asks_for_none_and_looks_at_no_secret() -> None:
    secrets = Secrets()
    assert await apply(secrets, limits={"requestBytes": 4096, "concurrentRequests": 7}) == (None, None)
    assert secrets.policy == {"keysRequired": False, "keys": [], "requestBytes": 4096, "concurrentRequests": 7}


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
