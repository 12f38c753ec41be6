"""The real operator against a real API server: ModelServers with no node and no engine."""

import base64
import json
from collections.abc import Iterator

import pytest
from integration.api import Object
from integration.operator_process import OperatorProcess
from integration.world import ADAPTER, DATASET, DIGEST, TIME, World, engine_status
from support.protocol_sidecars import ProtocolSidecar, ProtocolSidecars
from support.waiting import eventually

pytestmark = pytest.mark.integration
KIND = "ModelServer"
CHILDREN = {
    "Deployment": "server-engine",
    "PodDisruptionBudget": "server-engine",
    "Service": "server",
    "ConfigMap": "server-desired",
}
STORES = [{"name": "adapters", "claimName": "adapters"}]
VERSION = "tuned--aaaaaaaa"
LEAP = 2
"""By how much a revision rises that leaps ahead of a pod which says one more than it was told."""


def desired(world: World) -> Object:
    """Return what pods of the server `server` should hold."""
    state: Object = json.loads(world.get("ConfigMap", "server-desired")["data"]["desired.json"])
    return state


def test_server_gets_its_children_and_serves(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve()
    starting = world.wait_reason(KIND, "server", "EngineStarting")
    assert starting["status"] == "False"
    assert world.condition(KIND, "server", "Reconciling") is not None
    world.start_engines()
    status = world.get(KIND, "server")["status"]
    assert status["url"] == f"http://server.{world.namespace}.svc:80/v1"
    assert (status["replicas"], status["readyReplicas"]) == (1, 1)
    assert world.condition(KIND, "server", "Reconciling") is None
    assert world.get("Service", "server")["spec"]["ports"][0]["targetPort"] == 8000
    world.wait_events("EngineStarting", "Serving")
    told = world.api.list("Event", namespace=world.namespace)
    ours = {event["reason"] for event in told if event.get("reportingController") == "whetstone.dev/operator"}
    assert ours == {"EngineStarting", "Serving"}, "what is no change is not told"


def test_missing_claim_is_named_and_waited_for(world: World, operator: OperatorProcess) -> None:
    world.serve()
    ready = world.wait_reason(KIND, "server", "ClaimNotFound")
    assert "spec.model.source.uri: claim models does not exist" in ready["message"]
    world.claims("models")
    world.wait_reason(KIND, "server", "EngineStarting")


@pytest.fixture
def sidecar(world: World, operator: OperatorProcess) -> Iterator[ProtocolSidecar]:
    """The sidecar of a server's only pod, which the operator has told what to hold."""
    world.claims()
    world.serve(adapterStores=STORES)
    with ProtocolSidecars(1) as sidecars:
        [pod] = eventually(lambda: world.engine_pods(), what="the pod")
        [sidecar] = sidecars.pods
        world.set_pod_status(pod, engine_status(sidecar.address))
        eventually(lambda: sidecar.revision == desired(world)["revision"], what="the pod is told")
        yield sidecar


def test_pods_that_were_told_by_a_clock_ahead_take_what_a_new_config_map_says(
    world: World, sidecar: ProtocolSidecar
) -> None:
    ahead = sidecar.revision + 3600
    sidecar.hold(ahead)
    source = {"uri": "pvc://adapters/a", "digest": DIGEST}
    change = {"spec": {"adapters": [{"name": "tuned", "source": source}]}}
    world.api.merge(KIND, "server", change, namespace=world.namespace)
    eventually(lambda: sidecar.revision > ahead, what="the pod is told of the adapter")
    eventually(lambda: desired(world)["revision"] == sidecar.revision, what="the pod holds what is written")


def test_pod_that_always_says_a_newer_revision_is_not_written_for_without_end(
    world: World, operator: OperatorProcess, sidecar: ProtocolSidecar
) -> None:
    before = sidecar.revision
    sidecar.run_ahead()
    for number in range(12):
        looks = operator.metric("whetstone_reconcile_total", controller="modelservers")
        change = {"metadata": {"labels": {"example.com/look": str(number)}}, "spec": {"drain": {"seconds": number}}}
        world.api.merge(KIND, "server", change, namespace=world.namespace)
        eventually(
            lambda looks=looks: operator.metric("whetstone_reconcile_total", controller="modelservers") > looks,
            what="another look",
        )
    assert sidecar.revision > before, "it leaps ahead of what the pod says"
    assert sidecar.revision <= before + 3 * LEAP, "one leap at once, and the next ones after pauses that grow"


def test_unpublished_adapter_never_holds_the_server_back(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve(adapterStores=STORES, adapters=[{"name": "tuned", "trainingJobRef": {"name": "train"}}])
    missing = world.wait_reason(KIND, "server", "ReferenceNotFound", condition="AdaptersLoaded")
    assert missing["status"] != "True"
    assert "LoRATrainingJob train" in missing["message"]
    world.train()
    world.wait_reason(KIND, "server", "NotPublished", condition="AdaptersLoaded")
    world.start_engines()
    assert desired(world)["adapters"] == []


def test_published_adapter_reaches_pods_without_a_rollout(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve(adapterStores=STORES, adapters=[{"name": "tuned", "trainingJobRef": {"name": "train"}}])
    world.start_engines()
    world.train(baseModel={"modelServerRef": {"name": "server"}})
    world.end_well(world.wait_job("train", "prepare"), dataset=DATASET)
    train = world.wait_job("train", "train")
    before, deployment = desired(world), world.get("Deployment", "server-engine")
    world.end_well(train, adapter=ADAPTER, metrics={})
    held = eventually(lambda: desired(world)["adapters"], what="the adapter in the desired state")
    assert held == [
        {
            "name": "tuned",
            "servedName": VERSION,
            "digest": DIGEST,
            "source": "pvc://adapters/a",
            "path": "/mnt/claims/adapters/a",
            "required": False,
        }
    ]
    assert desired(world)["revision"] > before["revision"]
    after = world.get("Deployment", "server-engine")
    assert after["spec"]["template"] == deployment["spec"]["template"]
    assert after["metadata"]["generation"] == deployment["metadata"]["generation"]


def test_adapter_outside_the_stores_is_refused_with_the_fix(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve(adapters=[{"name": "tuned", "source": {"uri": "pvc://adapters/a", "digest": DIGEST}}])
    refused = world.wait_reason(KIND, "server", "StoreNotMounted", condition="AdaptersLoaded")
    assert refused["message"] == "adapter tuned lies in claim adapters; add it to spec.adapterStores"
    assert desired(world)["adapters"] == []


def test_alias_with_a_promotion_serves_the_base_at_first(world: World, operator: OperatorProcess) -> None:
    world.claims()
    promotion = {"benchmarkSelector": {"matchLabels": {"suite": "shell"}}}
    world.serve(aliases=[{"name": "assistant", "promotion": promotion}])
    eventually(lambda: desired(world)["aliases"] == {"assistant": "base"}, what="the alias is routed to the base")
    alias = eventually(lambda: world.get(KIND, "server")["status"].get("aliases"), what="the alias in status")[0]
    assert (alias["adapter"], alias["servedName"]) == ("base", "base")
    world.api.merge(KIND, "server", {"spec": {"aliases": None}}, namespace=world.namespace)
    eventually(lambda: "aliases" not in desired(world) or not desired(world)["aliases"], what="the alias is gone")


def test_scaling_to_zero_is_neither_ready_nor_stalled(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve(replicas=0)
    world.wait_reason(KIND, "server", "ScaledToZero")
    assert world.condition(KIND, "server", "Reconciling") is None
    assert world.condition(KIND, "server", "Stalled") is None


def test_image_that_cannot_be_pulled_stalls_with_the_kubelets_words(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve()
    pod = eventually(world.engine_pods, what="an engine pod")[0]
    waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "registry.test/engine:1"'}
    container = {
        "name": "engine",
        "image": "registry.test/engine:1",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": {"waiting": waiting},
    }
    world.set_pod_status(pod, {"phase": "Pending", "startTime": TIME, "containerStatuses": [container]})
    stalled = world.wait_reason(KIND, "server", "PodFailed", condition="Stalled")
    assert "container engine of pod server-engine-" in stalled["message"]
    assert "check the image registry.test/engine:1" in stalled["message"]


def test_deleted_children_come_back_and_the_token_stays(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve()
    world.wait_reason(KIND, "server", "EngineStarting")
    token = world.get("Secret", "server-access")["data"]["token"]
    assert len(base64.b64decode(token)) == 64
    old = {kind: world.get(kind, name)["metadata"]["uid"] for kind, name in CHILDREN.items()}
    revision = desired(world)["revision"]
    for kind, name in CHILDREN.items():
        world.api.delete(kind, name, namespace=world.namespace)
    for kind, name in CHILDREN.items():
        eventually(
            lambda kind=kind, name=name: (
                (found := world.api.get(kind, name, namespace=world.namespace)) is not None
                and found["metadata"]["uid"] != old[kind]
            ),
            what=f"a new {kind}",
        )
    assert desired(world)["revision"] >= revision
    assert world.get("Secret", "server-access")["data"]["token"] == token


OTHERS: dict[str, Object] = {
    "Service": {"metadata": {"name": "server"}, "spec": {"selector": {"app": "shop"}, "ports": [{"port": 80}]}},
    "ConfigMap": {"metadata": {"name": "server-desired"}, "data": {"menu": "soup"}},
    "Secret": {"metadata": {"name": "server-access"}, "stringData": {"token": "of-the-shop"}},
    "PodDisruptionBudget": {
        "metadata": {"name": "server-engine"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "shop"}}},
    },
    "Deployment": {
        "metadata": {"name": "server-engine"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "shop"}},
            "template": {
                "metadata": {"labels": {"app": "shop"}},
                "spec": {"containers": [{"name": "shop", "image": "registry.test/shop:1"}]},
            },
        },
    },
}


@pytest.mark.parametrize("kind", OTHERS)
def test_an_object_of_somebody_else_is_neither_changed_nor_deleted_with_the_server(
    world: World, operator: OperatorProcess, kind: str
) -> None:
    api_version = {"PodDisruptionBudget": "policy/v1", "Deployment": "apps/v1"}.get(kind, "v1")
    body = {"apiVersion": api_version, "kind": kind, **OTHERS[kind]}
    made = world.api.create(body, namespace=world.namespace)
    name = made["metadata"]["name"]
    world.claims()
    world.serve()
    taken = world.wait_reason(KIND, "server", "NameTaken", condition="Stalled")
    assert taken["message"] == (
        f"{kind} {name} in namespace {world.namespace} exists and is not of this ModelServer: delete or rename it,"
        " or give the ModelServer another name"
    )
    # Later looks read before they write.
    world.api.merge(KIND, "server", {"spec": {"limits": {"requestBytes": 4096}}}, namespace=world.namespace)
    eventually(
        lambda: world.get(KIND, "server")["status"]["observedGeneration"] == 2, what="the changed server is looked at"
    )
    assert without_status(world.get(kind, name)) == without_status(made)

    world.api.delete(kind, name, namespace=world.namespace)
    world.api.merge(KIND, "server", {"spec": {"limits": None}}, namespace=world.namespace)
    world.wait_reason(KIND, "server", "EngineStarting")
    assert world.get(kind, name)["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "whetstone"


def without_status(obj: Object) -> Object:
    """Return an object as its maker wrote it."""
    metadata = {name: obj["metadata"].get(name) for name in ("uid", "labels", "annotations", "ownerReferences")}
    annotations = metadata["annotations"] or {}
    metadata["annotations"] = {k: v for k, v in annotations.items() if not k.startswith("deployment.kubernetes.io/")}
    return {"metadata": metadata, **{part: obj.get(part) for part in ("spec", "data")}}


def test_deleting_the_server_removes_its_children(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve()
    world.wait_reason(KIND, "server", "EngineStarting")
    world.api.delete(KIND, "server", namespace=world.namespace)
    for kind, name in (*CHILDREN.items(), ("Secret", "server-access")):
        eventually(
            lambda kind=kind, name=name: world.api.get(kind, name, namespace=world.namespace) is None,
            what=f"{kind} is gone",
        )


def test_foreground_deletion_ends(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve()
    world.start_engines()
    world.api.delete(KIND, "server", namespace=world.namespace, propagation="Foreground")
    eventually(lambda: world.api.get(KIND, "server", namespace=world.namespace) is None, what="the server is gone")
    assert [kind for kind, name in CHILDREN.items() if world.api.get(kind, name, namespace=world.namespace)] == []


def test_edited_labels_stand_in_the_way_of_no_later_edit(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve()
    world.start_engines()
    selector = world.get("Deployment", "server-engine")["spec"]["selector"]
    labels = {"metadata": {"labels": {"example.com/team": "a", "whetstone.dev/model-server": "another"}}}
    world.api.merge(KIND, "server", labels, namespace=world.namespace)
    world.api.merge(KIND, "server", {"spec": {"replicas": 2}}, namespace=world.namespace)
    eventually(lambda: len(world.engine_pods()) == 2, what="two pods")
    assert world.get("Deployment", "server-engine")["spec"]["selector"] == selector
    world.start_engines()
    assert world.condition(KIND, "server", "Stalled") is None


def test_quantities_may_be_written_in_any_way(world: World, operator: OperatorProcess) -> None:
    world.claims()
    written = {"cpu": "1000m", "memory": "1024Mi", "ephemeral-storage": "0.5Gi"}
    world.serve(resources={"requests": written, "limits": written})
    world.start_engines()
    deployment = world.get("Deployment", "server-engine")["metadata"]
    for number in range(3):
        before = operator.metric("whetstone_reconcile_total", controller="modelservers")
        note = {"metadata": {"annotations": {"example.com/touched": str(number)}}}
        world.api.merge(KIND, "server", note, namespace=world.namespace)
        eventually(
            lambda before=before: operator.metric("whetstone_reconcile_total", controller="modelservers") > before,
            what="a reconcile",
        )
    after = world.get("Deployment", "server-engine")["metadata"]
    assert (after["generation"], after["resourceVersion"]) == (1, deployment["resourceVersion"])


def test_restart_of_the_operator_changes_nothing(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve()
    world.start_engines()
    names = {KIND: "server", **CHILDREN}

    def versions() -> dict[str, str]:
        return {kind: world.get(kind, name)["metadata"]["resourceVersion"] for kind, name in names.items()}

    operator.kill()
    before = versions()
    operator.start()
    eventually(
        lambda: operator.metric("whetstone_reconcile_total", controller="modelservers", result="ok") >= 1,
        what="the server is looked at again",
    )
    assert versions() == before


def test_changed_children_are_set_right(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve()
    eventually(lambda: world.engine_pods(), what="a pod")
    world.api.merge("Deployment", "server-engine", {"spec": {"replicas": 3}}, namespace=world.namespace)
    eventually(lambda: world.get("Deployment", "server-engine")["spec"]["replicas"] == 1, what="one replica again")


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


def test_replicas_of_an_autoscaler_are_never_reset(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve()
    world.start_engines()
    target = {"apiVersion": "whetstone.dev/v1alpha1", "kind": KIND, "name": "server"}
    autoscaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "server"},
        # Below its minimum an autoscaler needs no metrics to act.
        "spec": {"scaleTargetRef": target, "minReplicas": 3, "maxReplicas": 5},
    }
    world.api.create(autoscaler, namespace=world.namespace)
    eventually(lambda: len(world.engine_pods()) == 3, what="the autoscaler's three pods")
    world.api.merge(KIND, "server", {"spec": {"adapterStores": STORES}}, namespace=world.namespace)
    eventually(
        lambda: (
            "claim-adapters"
            in {v["name"] for v in world.get("Deployment", "server-engine")["spec"]["template"]["spec"]["volumes"]}
        ),
        what="another change of the user's has gone through",
    )
    assert world.get(KIND, "server")["spec"]["replicas"] == 3
    assert world.get("Deployment", "server-engine")["spec"]["replicas"] == 3


def test_restart_is_told_with_what_it_changes(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve()
    world.start_engines()
    world.api.merge(KIND, "server", {"spec": {"adapterCapacity": {"maxRank": 64}}}, namespace=world.namespace)
    rollout = world.wait_reason(KIND, "server", "Progressing")
    assert "engines restart for: --max-lora-rank=16 -> --max-lora-rank=64" in rollout["message"]


def test_kill_keeps_token_and_deployment(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve()
    eventually(lambda: world.engine_pods(), what="a pod")
    operator.kill()
    before = [world.get(kind, name) for kind, name in (("Secret", "server-access"), ("Deployment", "server-engine"))]
    operator.start()
    world.start_engines()
    secret, deployment = world.get("Secret", "server-access"), world.get("Deployment", "server-engine")
    assert secret["data"] == before[0]["data"]
    assert deployment["metadata"]["uid"] == before[1]["metadata"]["uid"]
    assert deployment["metadata"]["generation"] == before[1]["metadata"]["generation"]


def test_status_is_silent_at_rest(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve()
    world.start_engines()
    for number in range(5):
        before = operator.metric("whetstone_reconcile_total", controller="modelservers")
        note = {"metadata": {"annotations": {"example.com/touched": TIME + str(number)}}}
        version = world.api.merge(KIND, "server", note, namespace=world.namespace)["metadata"]["resourceVersion"]
        eventually(
            lambda before=before: operator.metric("whetstone_reconcile_total", controller="modelservers") > before,
            what="a reconcile",
        )
        assert number == 0 or world.get(KIND, "server")["metadata"]["resourceVersion"] == version
