"""The real operator against a real API server: ModelServers and their children."""

import pytest
from integration.operator_process import OperatorProcess
from integration.world import ADAPTER, DATASET, DIGEST, TIME, World
from support.waiting import eventually

pytestmark = pytest.mark.integration
KIND = "ModelServer"
CHILDREN = (("Deployment", "server-engine"), ("Service", "server"), ("ConfigMap", "server-desired"))


def test_server_waits_for_its_claim_then_serves(world: World, operator: OperatorProcess) -> None:
    world.serve()
    ready = world.wait_reason(KIND, "server", "ClaimNotFound")
    assert "spec.model.source.uri: claim models does not exist" in ready["message"]
    world.claims("models")
    world.wait_reason(KIND, "server", "EngineStarting")
    world.start_engines()
    status = world.get(KIND, "server")["status"]
    assert status["readyReplicas"] == 1
    assert status["url"] == f"http://server.{world.namespace}.svc:80/v1"
    assert world.condition(KIND, "server", "Reconciling") is None


def test_deleted_children_come_back(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve()
    for kind, name in CHILDREN:
        old = eventually(lambda kind=kind, name=name: world.api.get(kind, name, namespace=world.namespace), what=name)
        world.api.delete(kind, name, namespace=world.namespace)
        eventually(
            lambda kind=kind, name=name, old=old: world.get(kind, name)["metadata"]["uid"] != old["metadata"]["uid"],
            what=f"a new {kind}",
        )


def test_changed_children_are_set_right(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve()
    eventually(lambda: world.engine_pods(), what="a pod")
    world.api.merge("Deployment", "server-engine", {"spec": {"replicas": 3}}, namespace=world.namespace)
    eventually(lambda: world.get("Deployment", "server-engine")["spec"]["replicas"] == 1, what="one replica again")


def test_deleting_the_server_removes_its_children(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve()
    eventually(lambda: world.engine_pods(), what="a pod")
    world.api.delete(KIND, "server", namespace=world.namespace)
    for kind, name in (*CHILDREN, ("Secret", "server-token")):
        eventually(
            lambda kind=kind, name=name: world.api.get(kind, name, namespace=world.namespace) is None,
            what=f"{kind} {name} is gone",
        )


def test_scale_subresource_changes_the_pods(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve()
    world.start_engines()
    path = f"/apis/whetstone.dev/v1alpha1/namespaces/{world.namespace}/modelservers/server/scale"
    scale = world.api.raw("GET", path)
    assert scale["status"]["selector"]
    world.api.raw("PUT", path, {**scale, "spec": {"replicas": 2}})
    eventually(lambda: len(world.engine_pods()) == 2, what="two pods")
    world.api.merge(KIND, "server", {"spec": {"replicas": 0}}, namespace=world.namespace)
    world.wait_reason(KIND, "server", "ScaledToZero")


def test_image_that_cannot_be_pulled_is_told_with_its_name(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve(engine={"image": "registry.test/nothing:1"})
    pod = eventually(lambda: world.engine_pods(), what="a pod")[0]
    waiting = {"reason": "ImagePullBackOff", "message": "not found"}
    engine = {"name": "engine", "image": "registry.test/nothing:1", "imageID": "", "ready": False, "restartCount": 0}
    world.set_pod_status(pod, {"containerStatuses": [{**engine, "state": {"waiting": waiting}}]})
    stalled = world.wait_reason(KIND, "server", "PodFailed", condition="Stalled")
    assert "check the image registry.test/nothing:1" in stalled["message"]


def test_kill_keeps_token_and_deployment(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve()
    eventually(lambda: world.engine_pods(), what="a pod")
    operator.kill()
    before = [world.get(kind, name) for kind, name in (("Secret", "server-token"), ("Deployment", "server-engine"))]
    operator.start()
    world.start_engines()
    secret, deployment = world.get("Secret", "server-token"), world.get("Deployment", "server-engine")
    assert secret["data"] == before[0]["data"]
    assert deployment["metadata"]["uid"] == before[1]["metadata"]["uid"]
    assert deployment["metadata"]["generation"] == before[1]["metadata"]["generation"]


def test_unpublished_adapter_never_holds_the_server_back(world: World, operator: OperatorProcess) -> None:
    world.claims()
    store = [{"name": "published", "claimName": "adapters"}]
    world.serve(adapterStores=store, adapters=[{"name": "a", "trainingJobRef": {"name": "train"}}])
    world.start_engines()
    loaded = world.condition(KIND, "server", "AdaptersLoaded")
    assert loaded is not None
    assert loaded["status"] != "True"
    assert "LoRATrainingJob train" in loaded["message"]
    generation = world.get("Deployment", "server-engine")["metadata"]["generation"]
    world.train(baseModel={"modelServerRef": {"name": "server"}})
    world.end_well(world.wait_job("train", "prepare"), dataset=DATASET)
    world.end_well(world.wait_job("train", "train"), adapter=ADAPTER)
    desired = eventually(
        lambda: text if DIGEST in (text := world.get("ConfigMap", "server-desired")["data"]["desired.json"]) else "",
        what="the published adapter is desired",
    )
    assert '"servedName":"a--aaaaaaaa"' in desired
    assert world.get("Deployment", "server-engine")["metadata"]["generation"] == generation


def test_adapter_outside_the_stores_is_told(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve(adapters=[{"name": "a", "source": {"uri": "pvc://elsewhere/a", "digest": DIGEST}}])
    world.start_engines()
    loaded = world.wait_reason(KIND, "server", "StoreNotMounted", condition="AdaptersLoaded")
    assert "elsewhere" in loaded["message"]
    assert "adapterStores" in loaded["message"]


def test_status_is_silent_at_rest(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve()
    world.start_engines()
    for number in range(5):
        before = operator.metric("whetstone_reconcile_total", controller="modelservers")
        note = {"metadata": {"annotations": {"example.com/touched": TIME + str(number)}}}
        version = world.api.merge(KIND, "server", note, namespace=world.namespace)["metadata"]["resourceVersion"]
        eventually(
            lambda before=before: operator.metric("whetstone_reconcile_total", controller="modelservers") > before + 1,
            what="two reconciles",
        )
        assert number == 0 or world.get(KIND, "server")["metadata"]["resourceVersion"] == version
