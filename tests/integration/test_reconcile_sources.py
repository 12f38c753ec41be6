"""The real operator with places outside the cluster, a hub beside it, and no node."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.api import Object
from integration.operator_process import OperatorProcess
from integration.world import DIGEST, TIME, World
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


def model(uri: str, **source: object) -> Object:
    return {"source": {"uri": uri, **source}, "servedName": "base"}


def engine_pod(world: World) -> Object:
    return eventually(world.engine_pods, what="an engine pod")[0]


def fetch_container(pod: Object) -> Object:
    return next(one for one in pod["spec"]["initContainers"] if one["name"] == "fetch-model")


def test_model_of_a_branch_is_fetched_at_its_commit(world: World, operator: OperatorProcess, hub: Served) -> None:
    world.serve(model=model(BRANCH))
    pod = engine_pod(world)
    assert f"--uri={AT_COMMIT}" in fetch_container(pod)["args"]
    sources = eventually(lambda: world.get(KIND, "server")["status"].get("sources"), what="the commit in status")
    assert sources == [{"uri": BRANCH, "resolved": AT_COMMIT}]
    state = json.loads(world.get("ConfigMap", "server-desired")["data"]["desired.json"])
    engine = next(one for one in pod["spec"]["containers"] if one["name"] == "engine")
    assert state["modelPath"] == engine["args"][0]
    world.start_engines()


def test_fetching_and_its_failure_are_told(world: World, operator: OperatorProcess) -> None:
    world.serve(model=model(AT_COMMIT))
    pod = engine_pod(world)
    status: Object = {"name": "fetch-model", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    running = {**status, "state": {"running": {"startedAt": TIME}}}
    world.set_pod_status(pod, {"phase": "Pending", "startTime": TIME, "initContainerStatuses": [running]})
    told = world.wait_reason(KIND, "server", "FetchingModel")
    assert AT_COMMIT in told["message"]
    report = {"outcome": "Retry", "reason": "DiskFull", "message": f"spec.model.source.uri {AT_COMMIT}: no room"}
    ended = {"exitCode": 1, "message": json.dumps(report), "startedAt": TIME, "finishedAt": TIME}
    failed = {**status, "state": {"terminated": {**ended, "containerID": "", "reason": "Error"}}}
    world.set_pod_status(pod, {"initContainerStatuses": [failed]})
    told = world.wait_reason(KIND, "server", "DiskFull")
    assert told["message"].startswith(f"spec.model.source.uri {AT_COMMIT}: no room")
    assert world.condition(KIND, "server", "Stalled") is not None


def test_secret_and_cache_of_the_model_are_waited_for(world: World, operator: OperatorProcess) -> None:
    far = {**model("s3://bucket/base", digest=DIGEST, secretRef={"name": "keys"}), "cache": {"claimName": "cache"}}
    world.serve(model=far)
    told = world.wait_reason(KIND, "server", "ClaimNotFound")
    assert told["message"].startswith("spec.model.cache.claimName: claim cache does not exist")
    world.claims("cache")
    told = world.wait_reason(KIND, "server", "SecretNotFound")
    assert told["message"].startswith("spec.model.source.secretRef: Secret keys does not exist")
    secret(world, "keys", AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b")
    assert fetch_container(engine_pod(world))["args"][-1] == "--secret=/etc/whetstone/secrets/keys"


def test_cluster_without_image_volumes_is_told_before_any_pod(world: World, operator: OperatorProcess) -> None:
    uri = f"oci://registry.example.com/models/base@{DIGEST}"
    world.serve(model={**model(uri), "imageVolume": {}})
    told = world.wait_reason(KIND, "server", "ImageVolumesUnsupported")
    assert told["message"].startswith("spec.model.imageVolume: this cluster drops volumes that are images")
    assert not world.engine_pods()
    changes = {"spec": {"model": {"imageVolume": None}}}
    world.api.merge(KIND, "server", changes, namespace=world.namespace)
    assert f"--uri={uri}" in fetch_container(engine_pod(world))["args"]


def test_training_on_a_fetched_model_is_refused_with_the_fix(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve(model=model(AT_COMMIT))
    world.train(baseModel={"modelServerRef": {"name": "server"}})
    refused = world.wait_reason("LoRATrainingJob", "train", "InvalidSpec")
    assert "spec.baseModel.source.uri" in refused["message"]
