"""The real operator against a real API server: `spec.podTemplate` reaches the pods, or is refused with its path."""

from collections.abc import Mapping
from typing import Any

import pytest
from integration.api import Object
from integration.operator_process import OperatorProcess
from integration.world import World
from support.waiting import eventually

pytestmark = pytest.mark.integration
KIND = "ModelServer"
NODE_TERM = {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}
AFFINITY = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [NODE_TERM]}}}
SPREAD = {
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "DoNotSchedule",
    "maxSkew": 1,
    "labelSelector": {"matchLabels": {"whetstone.dev/model-server": "server"}},
}
TOLERATION = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}
SECRET_VARIABLE = {"name": "TEAM_KEY", "valueFrom": {"secretKeyRef": {"name": "team", "key": "k"}}}
MOUNT = {"name": "kernels", "mountPath": "/tmp/triton"}
SHIPPER = {"name": "shipper", "image": "registry.test/shipper:1", "envFrom": [{"configMapRef": {"name": "shipper"}}]}
OVERLAY: Mapping[str, Any] = {
    "metadata": {"labels": {"team": "a"}, "annotations": {"example.com/scrape": "yes"}},
    "spec": {
        "nodeSelector": {"disk": "fast"},
        "affinity": AFFINITY,
        "tolerations": [TOLERATION],
        "topologySpreadConstraints": [SPREAD],
        "runtimeClassName": "sandboxed",
        "priorityClassName": "urgent",
        "imagePullSecrets": [{"name": "registry"}],
        "volumes": [{"name": "kernels", "persistentVolumeClaim": {"claimName": "kernels"}}],
        "initContainers": [{"name": "warm", "image": "registry.test/warm:1"}],
        "containers": [{"name": "engine", "env": [SECRET_VARIABLE], "volumeMounts": [MOUNT]}, SHIPPER],
    },
}
LIMITS = {"limits": {"nvidia.com/gpu": 1, "memory": "8Gi"}}
CLASSES = {
    "/apis/scheduling.k8s.io/v1/priorityclasses": {"metadata": {"name": "urgent"}, "value": 1000},
    "/apis/node.k8s.io/v1/runtimeclasses": {"metadata": {"name": "sandboxed"}, "handler": "runsc"},
}


@pytest.fixture
def classes(world: World) -> Any:
    """A priority class and a runtime class."""
    for path, body in CLASSES.items():
        world.api.raw("POST", path, body)
    yield
    for path, body in CLASSES.items():
        world.api.raw("DELETE", f"{path}/{body['metadata']['name']}")


def container(pod: Object, name: str) -> Object:
    found: Object = next(one for one in pod["spec"]["containers"] if one["name"] == name)
    return found


def put(world: World, overlay: Any) -> None:
    """Give the server this podTemplate and no other."""
    server = world.get(KIND, "server")
    del server["status"]
    spec = {**server["spec"], "podTemplate": overlay}
    world.api.replace({**server, "spec": spec}, namespace=world.namespace)


def test_every_part_of_a_pod_template_arrives_in_the_pods(
    world: World, classes: None, operator: OperatorProcess
) -> None:
    world.claims()
    world.serve(podTemplate=OVERLAY, resources=LIMITS)
    pod = eventually(world.engine_pods, what="an engine pod")[0]
    spec = pod["spec"]
    assert pod["metadata"]["labels"]["team"] == "a"
    assert pod["metadata"]["annotations"]["example.com/scrape"] == "yes"
    assert spec["nodeSelector"] == {"disk": "fast"}
    assert spec["affinity"] == AFFINITY
    assert TOLERATION in spec["tolerations"]
    assert spec["topologySpreadConstraints"] == [SPREAD]
    assert spec["runtimeClassName"] == "sandboxed"
    assert (spec["priorityClassName"], spec["priority"]) == ("urgent", 1000)
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert {"name": "kernels", "persistentVolumeClaim": {"claimName": "kernels"}} in spec["volumes"]
    assert [one["name"] for one in spec["initContainers"]] == ["guard", "warm"]
    assert [one["name"] for one in spec["containers"]] == ["engine", "sidecar", "shipper"]
    engine = container(pod, "engine")
    assert engine["resources"]["limits"] == {"nvidia.com/gpu": "1", "memory": "8Gi"}
    assert SECRET_VARIABLE in engine["env"]
    assert MOUNT in engine["volumeMounts"]
    assert container(pod, "shipper")["envFrom"] == SHIPPER["envFrom"]
    world.start_engines()


def test_pods_of_a_pod_template_meet_the_restricted_standard(world: World, operator: OperatorProcess) -> None:
    path = f"/api/v1/namespaces/{world.namespace}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    found = world.api.raw("GET", path)
    world.api.raw("PUT", path, {**found, "metadata": {**found["metadata"], "labels": labels}})
    world.claims()
    kept = OVERLAY["spec"].keys() - {"runtimeClassName", "priorityClassName"}
    world.serve(podTemplate={"spec": {name: OVERLAY["spec"][name] for name in kept}})
    eventually(world.engine_pods, what="an engine pod")


def test_a_changed_pod_template_is_a_rollout_with_its_cause(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve(podTemplate={"spec": {"nodeSelector": {"disk": "fast"}}})
    world.start_engines()
    put(world, {"spec": {"nodeSelector": {"disk": "large"}}})
    rollout = world.wait_reason(KIND, "server", "Progressing")
    assert rollout["message"].endswith("engines restart for: podTemplate")
    eventually(lambda: {"disk": "large"} in [pod["spec"]["nodeSelector"] for pod in world.engine_pods()], what="it")


REFUSED = (
    (
        {"spec": {"terminationGracePeriodSeconds": 1}},
        "InvalidSpec",
        "spec.podTemplate.spec.terminationGracePeriodSeconds: must not be set: it follows from spec.drain.seconds",
    ),
    ({"spec": {"affinity": {"nodeAffinty": {}}}}, "ApplyRefused", 'unknown field "spec.affinity.nodeAffinty"'),
    (
        {"metadata": {"labels": {"whetstone.dev/model-server": "other"}}},
        "InvalidSpec",
        "spec.podTemplate.metadata.labels[whetstone.dev/model-server]: is set by Whetstone",
    ),
    (
        {"spec": {"tolerations": [{"key": "a", "operator": "Maybe"}]}},
        "ApplyRefused",
        "spec.tolerations[0].operator",
    ),
)
"""Overlays that cannot work, each with the reason and a part of the message."""


def test_a_pod_template_that_cannot_work_stalls_and_leaves_the_pods_alone(
    world: World, operator: OperatorProcess
) -> None:
    world.claims()
    world.serve()
    world.start_engines()
    before = world.get("Deployment", "server-engine")["metadata"]

    def told(words: str) -> bool:
        stalled = world.condition(KIND, "server", "Stalled")
        assert stalled is not None, world.condition(KIND, "server", "Ready")
        assert stalled["message"].startswith("spec.podTemplate")
        assert words in stalled["message"], stalled["message"]
        return True

    for overlay, reason, words in REFUSED:
        put(world, overlay)
        eventually(lambda words=words: told(words), what=f"{reason} is told")
        assert (world.condition(KIND, "server", "Stalled") or {})["reason"] == reason
    assert world.get("Deployment", "server-engine")["metadata"]["generation"] == before["generation"]
    put(world, {"spec": {"nodeSelector": {"disk": "fast"}}})
    world.wait_reason(KIND, "server", "Progressing")
    assert world.condition(KIND, "server", "Stalled") is None


def test_a_class_that_does_not_exist_is_waited_for(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve(podTemplate={"spec": {"priorityClassName": "urgent"}})
    waiting = world.wait_reason(KIND, "server", "ApplyRefused")
    assert "no PriorityClass with name urgent was found" in waiting["message"]
    assert world.condition(KIND, "server", "Stalled") is None
    path, body = next(iter(CLASSES.items()))
    world.api.raw("POST", path, body)
    try:
        world.wait_reason(KIND, "server", "EngineStarting")
    finally:
        world.api.raw("DELETE", f"{path}/urgent")


def test_pods_that_a_quota_refuses_are_told(world: World, operator: OperatorProcess) -> None:
    hard = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}}
    path = f"/api/v1/namespaces/{world.namespace}/resourcequotas"
    world.api.raw("POST", path, hard)
    eventually(lambda: world.api.raw("GET", f"{path}/q").get("status", {}).get("hard"), what="the quota counts")
    world.claims()
    world.serve(replicas=2)
    refused = world.wait_reason(KIND, "server", "ApplyRefused")
    assert refused["message"] == (
        "the API server refuses engine pods: pods is forbidden: exceeded quota: q, requested: pods=1, used: pods=1,"
        " limited: pods=1"
    )
    world.api.raw("DELETE", f"{path}/q")
    eventually(lambda: len(world.engine_pods()) == 2, what="the second pod")
    world.wait_reason(KIND, "server", "EngineStarting")


def test_a_refused_pod_template_is_silent_at_rest(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve(podTemplate={"spec": {"tolerations": [{"key": "a", "operator": "Maybe"}]}})
    world.wait_reason(KIND, "server", "ApplyRefused")
    told = set()
    for number in range(3):
        before = operator.metric("whetstone_reconcile_total", controller="modelservers")
        note = {"metadata": {"annotations": {"example.com/touched": str(number)}}}
        touched = world.api.merge(KIND, "server", note, namespace=world.namespace)
        told.add(touched["status"]["conditions"][0]["message"])
        eventually(
            lambda before=before: operator.metric("whetstone_reconcile_total", controller="modelservers") > before,
            what="a reconcile",
        )
    assert len(told) == 1
