"""The operator's token for a server: another one for each, and a new one without a restart or a gap."""

import base64

import httpx
import pytest
from integration.engine_pods import SERVER_SPEC, EnginePod, Kubelet
from integration.world import World
from support.fake_vllm import BASE
from support.waiting import eventually
from whetstone_api.digests import versioned_name
from whetstone_api.pod_state import SIDECAR_PORT
from whetstone_api.vocabulary import TOKEN_HEADER

pytestmark = pytest.mark.integration
KIND = "ModelServer"


def token_of(world: World, server: str = "server") -> str:
    """Return the token as it is stored."""
    return base64.b64decode(world.get("Secret", f"{server}-access")["data"]["token"]).decode()


def administer(pod: EnginePod, token: str) -> tuple[int, int]:
    """Return what sidecar and guard answer to who sends a token."""
    headers = {TOKEN_HEADER: token}
    sidecar = httpx.put(f"http://{pod.address}:{SIDECAR_PORT}/v1/desired", headers=headers, trust_env=False)
    guard = httpx.get(f"{pod.url}/whetstone/guard", headers=headers, trust_env=False)
    return sidecar.status_code, guard.status_code


def test_token_of_one_server_opens_no_other(world: World, kubelet: Kubelet) -> None:
    for name in ("server", "other"):
        world.create(KIND, name, SERVER_SPEC)
    [pod] = kubelet.running(1)
    [other] = kubelet.running(1, server="other")

    assert token_of(world) != token_of(world, "other")
    assert administer(pod, token_of(world, "other")) == (401, 401)
    assert administer(other, token_of(world)) == (401, 401)
    assert administer(pod, token_of(world))[1] == 200


def test_token_whose_secret_is_deleted_is_made_anew_without_a_restart(world: World, kubelet: Kubelet) -> None:
    world.create(KIND, "server", SERVER_SPEC)
    [pod] = kubelet.running(1)
    before, generation = token_of(world), world.get("Deployment", "server-engine")["metadata"]["generation"]
    world.wait_reason(KIND, "server", "Serving")

    world.api.delete("Secret", "server-access", namespace=world.namespace)
    source = kubelet.claims.publish("a")
    change = {"spec": {"adapters": [{"name": "tuned", "source": source}]}}
    world.api.merge(KIND, "server", change, namespace=world.namespace)
    eventually(lambda: world.api.get("Secret", "server-access", namespace=world.namespace), what="the new token")
    after = token_of(world)
    assert after != before
    # Clients notice nothing while the pods still have the old one.
    body = {"model": BASE, "prompt": "a", "max_tokens": 1}
    assert httpx.post(f"{pod.url}/v1/completions", json=body, trust_env=False).status_code == 200

    pod.renew_token(after.encode())
    version = versioned_name("tuned", source["digest"])
    eventually(lambda: list(pod.engine.adapters) == [version], what="the operator reaches the pod again", seconds=60)
    assert administer(pod, before) == (401, 401)
    assert world.condition(KIND, "server", "Ready")["status"] == "True"  # type: ignore[index]
    assert world.get("Deployment", "server-engine")["metadata"]["generation"] == generation
