"""The real operator against a real API server: API keys and limits reach the Secret that guards read."""

import base64
import hashlib
import json
from collections.abc import Mapping

import pytest
from integration.api import Object
from integration.operator_process import OperatorProcess
from integration.world import World
from support.waiting import eventually

pytestmark = pytest.mark.integration
KIND = "ModelServer"
KEYS = [
    {"name": "team", "secretRef": {"name": "keys", "key": "team"}, "models": ["base"]},
    {"name": "all", "secretRef": {"name": "keys", "key": "all"}},
]


def put_secret(world: World, **values: str) -> None:
    """Create the Secret `keys`, or give it these values."""
    data = {name: base64.b64encode(value.encode()).decode() for name, value in values.items()}
    if world.api.get("Secret", "keys", namespace=world.namespace):
        world.api.merge("Secret", "keys", {"data": data}, namespace=world.namespace)
    else:
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "data": data}
        world.api.create(secret, namespace=world.namespace)


def policy(world: World) -> Object:
    """Return what the guard of `server` reads."""
    found: Object = json.loads(base64.b64decode(world.get("Secret", "server-access")["data"]["access.json"]))
    return found


def known(world: World) -> Mapping[str, str]:
    """Return the hash of each key that the guard knows, by its name."""
    return {key["name"]: key["sha256"] for key in policy(world)["keys"]}


def sha256(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()


def test_server_without_keys_asks_for_none(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve()
    world.wait_reason(KIND, "server", "EngineStarting")
    assert policy(world) == {"keysRequired": False, "keys": []}


def test_keys_and_limits_come_and_go_without_a_rollout(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve()
    world.start_engines()
    before = world.get("Deployment", "server-engine")["metadata"]["generation"]
    put_secret(world, team="k-team\n", all="k-all")
    limits = {"requestBytes": 4096, "concurrentRequests": 7}
    change = {"spec": {"apiKeys": KEYS, "limits": limits}}
    world.api.merge(KIND, "server", change, namespace=world.namespace)
    eventually(lambda: policy(world)["keysRequired"], what="keys are required")
    held = policy(world)
    assert (held["requestBytes"], held["concurrentRequests"]) == (4096, 7)
    assert [key.get("models") for key in held["keys"]] == [["base"], None, None]
    runner = base64.b64decode(world.get("Secret", "server-access")["data"]["runner-key"]).decode()
    expected = {"team": sha256("k-team"), "all": sha256("k-all"), "whetstone-benchmark": sha256(runner)}
    assert known(world) == expected
    # A change of the Secret is found with the next reconcile.
    put_secret(world, all="k-new")
    world.api.merge(KIND, "server", {"spec": {"limits": {"requestBytes": 8192}}}, namespace=world.namespace)
    eventually(lambda: known(world)["all"] == sha256("k-new"), what="the new key")
    assert world.get("Deployment", "server-engine")["metadata"]["generation"] == before
    world.api.merge(KIND, "server", {"spec": {"apiKeys": None, "limits": None}}, namespace=world.namespace)
    eventually(lambda: policy(world) == {"keysRequired": False, "keys": []}, what="no keys are required")


def test_missing_secret_and_key_are_named_and_keep_no_other_key_out(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve(apiKeys=KEYS)
    missing = world.wait_reason(KIND, "server", "SecretNotFound")
    assert missing["message"] == (
        f"spec.apiKeys[team].secretRef.name: Secret keys does not exist in namespace {world.namespace}; create it"
    )
    assert set(known(world)) == {"whetstone-benchmark"}
    assert policy(world)["keysRequired"] is True
    put_secret(world, team="k-team")
    words = "spec.apiKeys[all].secretRef.key: Secret keys has no key all (its keys: team); add it"
    eventually(lambda: (world.condition(KIND, "server", "Ready") or {})["message"] == words, what="the missing key")
    assert set(known(world)) == {"team", "whetstone-benchmark"}
    put_secret(world, all="two words")
    words = "spec.apiKeys[all].secretRef.key: key all of Secret keys must be printable ASCII without spaces; replace it"
    eventually(lambda: (world.condition(KIND, "server", "Ready") or {})["message"] == words, what="the unusable key")
    put_secret(world, all="k-all")
    world.wait_reason(KIND, "server", "EngineStarting")
    assert set(known(world)) == {"team", "all", "whetstone-benchmark"}
