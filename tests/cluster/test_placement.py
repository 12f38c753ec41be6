"""Engine pods are placed by the real scheduler on a node that says it has accelerators."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config
from support.waiting import eventually
from whetstone_dev.demo.kube import WHETSTONE, Kube
from whetstone_dev.demo.watch import condition, is_true

pytestmark = [pytest.mark.cluster, pytest.mark.long]
GPU = "nvidia.com/gpu"
DEVICES = 2
MARK = "example.com/accelerated"
NAME = "placed"
PACKAGES = ("", "entrypoints/", "entrypoints/cli/")
PROGRAM = Path(__file__).parents[1] / "support" / "placeholder_engine.py"
SECONDS = 150.0


@pytest.fixture(scope="module")
def node(kubeconfig: Path) -> Iterator[str]:
    """A node that says that it has two accelerators, and carries a label."""
    core = client.CoreV1Api(config.new_client_from_config(str(kubeconfig)))
    name = str(core.list_node().items[0].metadata.name)
    count = {GPU: str(DEVICES)}
    core.patch_node_status(name, {"status": {"capacity": count, "allocatable": count}})
    core.patch_node(name, {"metadata": {"labels": {MARK: "yes"}}})
    eventually(lambda: (core.read_node(name).status.allocatable or {}).get(GPU) == str(DEVICES), what="two devices")
    yield name
    core.patch_node(name, {"metadata": {"labels": {MARK: None}}})
    core.patch_node_status(name, {"status": {"capacity": {GPU: None}, "allocatable": {GPU: None}}})


@pytest.fixture
def place(kube: Kube, namespace: str, node: str) -> str:
    """A namespace with an empty claim and the program that takes the engine's place."""
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Mi"}}}
    meta = {"name": "models"}
    kube.apply(
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": claim}, namespace=namespace
    )
    data = {"main.py": PROGRAM.read_text(), "empty": ""}
    kube.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "placeholder"}, "data": data},
        namespace=namespace,
    )
    return namespace


def serve(kube: Kube, namespace: str, *, replicas: int, **fields: Any) -> None:
    """Apply the server; what it asks of the node is in the fields."""
    items = [{"key": "empty", "path": f"{package}__init__.py"} for package in PACKAGES]
    items.append({"key": "main.py", "path": "entrypoints/cli/main.py"})
    mount = {"name": "placeholder", "mountPath": "/home/whetstone/vllm"}
    overlay = {
        "nodeSelector": {MARK: "yes"},
        "volumes": [{"name": "placeholder", "configMap": {"name": "placeholder", "items": items}}],
        "containers": [{"name": "engine", "volumeMounts": [mount]}],
    }
    spec = {
        "model": {"source": {"uri": "pvc://models/tiny"}, "servedName": "tiny"},
        "replicas": replicas,
        "drain": {"seconds": 0},
        "podTemplate": {"spec": overlay},
        **fields,
    }
    obj = {"apiVersion": WHETSTONE, "kind": "ModelServer", "metadata": {"name": NAME}, "spec": spec}
    kube.apply(obj, namespace=namespace)


def server(kube: Kube, namespace: str) -> dict[str, Any]:
    found = kube.get(WHETSTONE, "ModelServer", name=NAME, namespace=namespace)
    assert found is not None
    return found


def pods(kube: Kube, namespace: str) -> dict[str, dict[str, Any]]:
    """Return the server's pods by name."""
    found = kube.list("v1", "Pod", namespace=namespace, labels=f"whetstone.dev/model-server={NAME}")
    return {pod["metadata"]["name"]: pod for pod in found}


def devices(pod: dict[str, Any]) -> str:
    """Return how many accelerators a pod asks for."""
    engine = next(one for one in pod["spec"]["containers"] if one["name"] == "engine")
    return str(engine["resources"]["limits"][GPU])


def wait_serving(kube: Kube, namespace: str, *, without: set[str] | frozenset[str] = frozenset()) -> set[str]:
    """Wait until the server is Ready with none of some pods; return the names of its pods."""

    def settled() -> set[str] | None:
        found = server(kube, namespace)
        assert is_true(found, "Ready"), json.dumps(condition(found, "Ready"))
        assert found["metadata"]["generation"] == found["status"]["observedGeneration"]
        names = set(pods(kube, namespace))
        return names if not names & without else None

    return eventually(settled, what="Ready", seconds=SECONDS)


def test_a_rollout_on_a_full_node_takes_a_pod_away_before_it_brings_one(kube: Kube, place: str, node: str) -> None:
    serve(kube, place, replicas=DEVICES, resources={"limits": {GPU: 1}})
    before = wait_serving(kube, place)
    found = pods(kube, place).values()
    assert [(pod["spec"]["nodeName"], devices(pod)) for pod in found] == [(node, "1")] * DEVICES
    # No device is free: a pod more would never be placed, and the rollout would never end.
    serve(kube, place, replicas=DEVICES, resources={"limits": {GPU: 1}}, engine={"extraArgs": ["--max-num-seqs=8"]})
    after = wait_serving(kube, place, without=before)
    assert len(after) == DEVICES


def test_tensor_parallel_replicas_take_their_devices_together(kube: Kube, place: str, node: str) -> None:
    serve(kube, place, replicas=1, engine={"parallelism": {"tensor": DEVICES}})
    wait_serving(kube, place)
    [pod] = pods(kube, place).values()
    assert (pod["spec"]["nodeName"], devices(pod)) == (node, str(DEVICES))
    serve(kube, place, replicas=2, engine={"parallelism": {"tensor": DEVICES}})

    def told() -> bool:
        ready = condition(server(kube, place), "Ready")
        assert ready is not None
        assert (ready["reason"], f"Insufficient {GPU}" in ready["message"]) == ("PodFailed", True), ready
        return True

    eventually(told, what="the second replica finds no devices", seconds=SECONDS)
