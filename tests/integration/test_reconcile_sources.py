"""The real operator with places outside the cluster, a hub beside it, and no node."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.api import Object
from integration.operator_process import OperatorProcess
from integration.world import DIGEST, World
from support.adapters import make_adapter
from support.place_servers import COMMIT, Served, hub_server
from support.waiting import eventually

pytestmark = pytest.mark.integration
KIND = "ModelServer"
BRANCH = "hf://team/tools@main"
AT_COMMIT = f"hf://team/tools@{COMMIT}"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Served]:
    make_adapter(tmp_path / "hub" / "team" / "tools")
    with hub_server(tmp_path / "hub") as served:
        yield served


@pytest.fixture
def operator(operator_kubeconfig: Path, namespace: str, tmp_path: Path, hub: Served) -> Iterator[OperatorProcess]:
    """The running operator, with the hub of the test as its own."""
    log = tmp_path / "operator.log"
    process = OperatorProcess(
        kubeconfig=operator_kubeconfig,
        namespace=namespace,
        log=log,
        environment={"WHETSTONE_HUB_ENDPOINT": hub.url},
    )
    process.start()
    yield process
    process.stop()
    assert "Traceback" not in log.read_text(), log.read_text()[-6000:]


def desired(world: World) -> list[Object]:
    state: Object = json.loads(world.get("ConfigMap", "server-desired")["data"]["desired.json"])
    return list(state["adapters"])


def adapter(uri: str, **source: object) -> Object:
    return {"name": "tuned", "source": {"uri": uri, "digest": DIGEST, **source}}


def secret(world: World, name: str, **values: str) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": values}
    world.api.create(body, namespace=world.namespace)


def test_branch_is_pinned_once_for_all_pods(world: World, operator: OperatorProcess, hub: Served) -> None:
    world.claims()
    world.serve(adapters=[adapter(BRANCH)])
    held = eventually(lambda: desired(world), what="the adapter in the desired state")[0]
    assert (held["source"], held["path"], held["field"]) == (AT_COMMIT, "", "spec.adapters[tuned].source")
    sources = eventually(lambda: world.get(KIND, "server")["status"].get("sources"), what="the commit in status")
    assert sources == [{"uri": BRANCH, "digest": DIGEST, "resolved": AT_COMMIT}]
    assert world.get(KIND, "server")["status"]["adapters"][0]["source"] == AT_COMMIT
    hub.answers["/api/models/team/tools/revision/main"] = 404
    hub.asked.clear()
    world.api.merge(KIND, "server", {"spec": {"replicas": 2}}, namespace=world.namespace)
    eventually(lambda: world.get("Deployment", "server-engine")["spec"]["replicas"] == 2, what="the next reconcile")
    assert desired(world)[0]["source"] == AT_COMMIT
    assert hub.asked == []


def test_another_digest_looks_the_branch_up_anew(world: World, operator: OperatorProcess, hub: Served) -> None:
    world.claims()
    world.serve(adapters=[adapter(BRANCH)])
    eventually(lambda: desired(world), what="the adapter in the desired state")
    hub.asked.clear()
    other = "sha256:" + "b" * 64
    world.api.merge(KIND, "server", {"spec": {"adapters": [adapter(BRANCH, digest=other)]}}, namespace=world.namespace)
    eventually(lambda: desired(world)[0]["digest"] == other, what="the new digest")
    assert [one.path for one in hub.asked] == ["/api/models/team/tools/revision/main"]


def test_unknown_revision_is_told_and_nothing_loaded(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve(adapters=[adapter("hf://team/tools@gone")])
    told = world.wait_reason(KIND, "server", "SourceNotFound", condition="AdaptersLoaded")
    assert told["message"].startswith("spec.adapters[tuned].source.uri hf://team/tools@gone")
    world.start_engines()
    assert desired(world) == []


def test_secret_outside_the_stores_is_refused_with_the_fix(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve(adapters=[adapter("s3://bucket/a", secretRef={"name": "keys"})])
    refused = world.wait_reason(KIND, "server", "StoreNotMounted", condition="AdaptersLoaded")
    assert refused["message"] == "spec.adapters[tuned].source.secretRef: add Secret keys to spec.adapterStores"
    stores = [{"name": "keys", "secretRef": {"name": "keys"}}]
    world.api.merge(KIND, "server", {"spec": {"adapterStores": stores}}, namespace=world.namespace)
    held = eventually(lambda: desired(world), what="the adapter in the desired state")[0]
    assert (held["source"], held["secret"]) == ("s3://bucket/a", "keys")


def test_token_of_the_secret_is_used_and_waited_for(world: World, operator: OperatorProcess, hub: Served) -> None:
    hub.authorization = "Bearer s3cret"
    world.claims()
    stores = [{"name": "keys", "secretRef": {"name": "keys"}}]
    world.serve(adapterStores=stores, adapters=[adapter(BRANCH, secretRef={"name": "keys"})])
    missing = world.wait_reason(KIND, "server", "SecretNotFound", condition="AdaptersLoaded")
    assert "Secret keys does not exist in namespace" in missing["message"]
    secret(world, "keys", HF_TOKEN="s3cret")
    eventually(lambda: desired(world), what="the adapter in the desired state")


def test_operator_asks_no_hub_of_a_users_choice(world: World, operator: OperatorProcess, hub: Served) -> None:
    world.claims()
    secret(world, "keys", HF_ENDPOINT="http://169.254.169.254")
    stores = [{"name": "keys", "secretRef": {"name": "keys"}}]
    world.serve(adapterStores=stores, adapters=[adapter(BRANCH, secretRef={"name": "keys"})])
    refused = world.wait_reason(KIND, "server", "InvalidSpec", condition="AdaptersLoaded")
    assert "name the commit (40 hex digits)" in refused["message"]
    assert hub.asked == []
    source = adapter(AT_COMMIT, secretRef={"name": "keys"})
    world.api.merge(KIND, "server", {"spec": {"adapters": [source]}}, namespace=world.namespace)
    eventually(lambda: desired(world), what="the adapter in the desired state")
