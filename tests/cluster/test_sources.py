"""A server whose base model comes out of a registry, on the real node: fetched, kept in a claim, served."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.loop import Seeded, pod_is_ready
from support.waiting import eventually
from whetstone_dev.cluster import Cluster
from whetstone_dev.demo import plan
from whetstone_dev.demo.watch import condition, is_true

pytestmark = [pytest.mark.cluster, pytest.mark.long]
NAME = "fetched"
FETCH_SECONDS = 120.0
READY_SECONDS = 300.0


def host_folder(seeded: Seeded, claim: str) -> Path:
    """Return where the node keeps a claim; the node is this machine."""
    bound = seeded.kube.get("v1", "PersistentVolumeClaim", name=claim, namespace=seeded.namespace)
    assert bound is not None
    volume = seeded.kube.get("v1", "PersistentVolume", name=bound["spec"]["volumeName"])
    assert volume is not None
    source = volume["spec"].get("local") or volume["spec"]["hostPath"]
    return Path(source["path"])


@pytest.fixture
def artifact(seeded: Seeded) -> str:
    """The demo's base model in the cluster's registry; its URI."""
    import oras.client  # noqa: F401 - the package imports in a circle
    from oras.provider import Registry

    folder = host_folder(seeded, "models") / plan.MODEL
    registry = Registry(insecure=True)
    registry.session.trust_env = False
    files = [f"{path}:application/octet-stream" for path in sorted(folder.iterdir()) if path.is_file()]
    target = f"{Cluster().registry}/tests/model"
    answer = registry.push(f"{target}:v1", files=files, disable_path_validation=True)
    return f"oci://{target}@{answer.headers['Docker-Content-Digest']}"


@pytest.fixture
def place(seeded: Seeded) -> Iterator[Seeded]:
    """A claim and a Secret for the server `fetched`, removed afterwards with it."""
    claim: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}
    objects: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "cache"}, "spec": claim},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "registry"}, "stringData": {"plainHTTP": "true"}},
    ]
    for obj in objects:
        seeded.kube.apply(obj, namespace=seeded.namespace)
    yield seeded
    seeded.delete("ModelServer", NAME)
    eventually(lambda: not seeded.pods("model-server", NAME), what="pods of the server gone", seconds=150)
    for obj in objects:
        seeded.kube.delete("v1", obj["kind"], name=obj["metadata"]["name"], namespace=seeded.namespace)


def serve(seeded: Seeded, uri: str) -> None:
    server = next(obj for obj in plan.fit_to_cpu(plan.examples(), plan.SMALL) if obj["kind"] == "ModelServer")
    spec = {key: value for key, value in server["spec"].items() if key in ("engine", "resources")}
    source = {"uri": uri, "secretRef": {"name": "registry"}}
    spec["model"] = {"source": source, "servedName": "base", "cache": {"claimName": "cache"}}
    seeded.apply("ModelServer", NAME, spec)


def fetched(seeded: Seeded) -> dict[str, Any] | None:
    """Return how the fetching container of the newest pod ended well; None while it has not."""
    pods = seeded.pods("model-server", NAME)
    for status in (pods[-1]["status"].get("initContainerStatuses") or []) if pods else []:
        ended: dict[str, Any] | None = status["state"].get("terminated")
        if status["name"] == "fetch-model" and ended and ended["exitCode"] == 0:
            return ended
    return None


def test_model_from_a_registry_is_fetched_once_and_served(place: Seeded, artifact: str) -> None:
    serve(place, artifact.replace("@sha256:", "/none@sha256:"))
    told = eventually(
        lambda: (
            (found := condition(place.get("ModelServer", NAME), "Ready"))
            and found["reason"] == "SourceNotFound"
            and found
        ),
        what="the missing artifact is told",
        seconds=FETCH_SECONDS,
    )
    assert told["message"].startswith("spec.model.source.uri oci://")
    serve(place, artifact)
    eventually(lambda: fetched(place), what="the model in the claim", seconds=FETCH_SECONDS)
    eventually(lambda: is_true(place.get("ModelServer", NAME), "Ready"), what="the server Ready", seconds=READY_SECONDS)
    first = place.pods("model-server", NAME)[-1]
    [model] = [path for path in host_folder(place, "cache").iterdir() if path.is_dir()]
    written = (model / "config.json").stat().st_mtime_ns
    place.kube.delete("v1", "Pod", name=first["metadata"]["name"], namespace=place.namespace)
    eventually(
        lambda: [
            pod
            for pod in place.pods("model-server", NAME)
            if pod["metadata"]["uid"] != first["metadata"]["uid"] and pod_is_ready(pod)
        ],
        what="another pod Ready",
        seconds=READY_SECONDS,
    )
    assert (model / "config.json").stat().st_mtime_ns == written
