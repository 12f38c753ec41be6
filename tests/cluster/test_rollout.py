"""Under constant load, nothing that takes a pod away loses a request: a rollout, a scale-down, a node's drain."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import load_client
from support.loop import READY_SECONDS, Seeded, pod_is_ready
from support.waiting import eventually
from whetstone_dev.demo import plan
from whetstone_dev.demo.watch import condition, is_true

pytestmark = [pytest.mark.cluster, pytest.mark.long]
SERVER = "steady"
STREAM_SECONDS = 30.0


class Load:
    """The pod that sends requests, and what it has said.

    Args:
        seeded: The namespace.
        image: An image with aiohttp.
    """

    def __init__(self, seeded: Seeded, image: str) -> None:
        self._seeded = seeded
        self._image = image

    def start(self) -> None:
        """Start to send requests."""
        script = Path(load_client.__file__).read_text()
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "load"}, "data": {"load.py": script}}
        self._seeded.kube.apply(config, namespace=self._seeded.namespace)
        url = f"http://{SERVER}.{self._seeded.namespace}.svc/v1"
        container = {
            "name": "load",
            "image": self._image,
            "command": ["python3", "/load/load.py", url, plan.MODEL],
            # A client that gets no CPU for seconds finds its idle connections closed, whatever the server does.
            "resources": {"requests": {"cpu": "200m", "memory": "64Mi"}},
            "volumeMounts": [{"name": "load", "mountPath": "/load"}],
        }
        spec: dict[str, Any] = {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "containers": [container],
            "volumes": [{"name": "load", "configMap": {"name": "load"}}],
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "load"}, "spec": spec}
        self._seeded.kube.apply(pod, namespace=self._seeded.namespace)

    def stop(self) -> None:
        """Remove the pod and its script."""
        for kind in ("Pod", "ConfigMap"):
            self._seeded.kube.delete("v1", kind, name="load", namespace=self._seeded.namespace)

    def lines(self) -> list[dict[str, Any]]:
        """Return what the pod has printed."""
        log = self._seeded.kube.logs(namespace=self._seeded.namespace, pod="load", container="load", lines=5000)
        return [json.loads(line) for line in log.splitlines() if line.startswith("{")]

    def lost(self) -> list[dict[str, Any]]:
        """Return the requests that went wrong."""
        return [line for line in self.lines() if "lost" in line]

    def count(self, what: str) -> float:
        """Return the newest figure of a kind: answered, streams or longest."""
        return max((line[what] for line in self.lines() if what in line), default=0)

    def wait_for_more(self) -> None:
        """Wait until short requests and a whole stream more have gone well."""
        answered, streams = self.count("answered"), self.count("streams")
        eventually(
            lambda: self.count("answered") > answered and self.count("streams") > streams,
            what="requests go on",
            seconds=300,
        )


@pytest.fixture(scope="module")
def load(seeded: Seeded, images: dict[str, str]) -> Iterator[Load]:
    """A server of one replica with clients that never rest."""
    seeded.apply("ModelServer", SERVER, server_spec(replicas=1, drain=200))
    wait_until_serving(seeded, replicas=1)
    found = Load(seeded, images["server"])
    found.start()
    found.wait_for_more()
    yield found
    found.stop()
    seeded.delete("ModelServer", SERVER)
    eventually(lambda: not pods(seeded), what="pods of the server gone", seconds=400)


def server_spec(*, replicas: int, drain: int) -> dict[str, Any]:
    """Return a server of the seeded base model."""
    return {
        "model": {"source": {"uri": f"pvc://models/{plan.MODEL}"}, "servedName": plan.MODEL},
        "engine": {
            "dtype": "Float32",
            "maxModelLength": 1024,
            "extraArgs": ["--enforce-eager", f"--kv-cache-memory-bytes={plan.KV_CACHE_BYTES}"],
        },
        "replicas": replicas,
        "resources": {"requests": {"cpu": "300m", "memory": "2Gi"}, "limits": {"memory": "6Gi"}},
        "drain": {"seconds": drain},
    }


def pods(seeded: Seeded) -> list[dict[str, Any]]:
    """Return all pods of the server, those that are going too."""
    return seeded.pods("model-server", SERVER)


def wait_until_serving(seeded: Seeded, *, replicas: int, without: frozenset[str] = frozenset()) -> None:
    """Wait until exactly so many pods are there, all Ready, none of those named, and the status says Serving."""

    def settled() -> bool:
        found = pods(seeded)
        names = {pod["metadata"]["name"] for pod in found}
        assert len(found) == replicas, f"{sorted(names)}"
        assert not names & without
        assert all(pod_is_ready(pod) for pod in found)
        server = seeded.get("ModelServer", SERVER)
        assert is_true(server, "Ready"), f"{condition(server, 'Ready')}"
        return server["status"]["readyReplicas"] == replicas

    eventually(settled, what=f"{replicas} replicas of {SERVER} serve", seconds=READY_SECONDS * 2)


def test_rollout_of_one_replica_loses_no_request(seeded: Seeded, load: Load) -> None:
    old = frozenset(pod["metadata"]["name"] for pod in pods(seeded))
    seeded.apply("ModelServer", SERVER, server_spec(replicas=1, drain=201))
    eventually(
        lambda: "--shutdown-timeout=200 -> --shutdown-timeout=201" in ready_message(seeded),
        what="the status says why engines restart",
        seconds=60,
    )
    wait_until_serving(seeded, replicas=1, without=old)
    load.wait_for_more()
    assert load.lost() == []
    assert load.count("longest") >= STREAM_SECONDS


def test_drain_of_a_node_loses_no_request(seeded: Seeded, load: Load) -> None:
    seeded.apply("ModelServer", SERVER, server_spec(replicas=2, drain=201))
    wait_until_serving(seeded, replicas=2)
    first = pods(seeded)[0]["metadata"]["name"]
    seeded.kube.evict(namespace=seeded.namespace, pod=first)
    wait_until_serving(seeded, replicas=2, without=frozenset({first}))
    load.wait_for_more()
    assert load.lost() == []


def test_scale_down_loses_no_request(seeded: Seeded, load: Load) -> None:
    seeded.apply("ModelServer", SERVER, server_spec(replicas=2, drain=201))
    wait_until_serving(seeded, replicas=2)
    seeded.apply("ModelServer", SERVER, server_spec(replicas=1, drain=201))
    wait_until_serving(seeded, replicas=1)
    load.wait_for_more()
    assert load.lost() == []


def ready_message(seeded: Seeded) -> str:
    """Return the message of the server's condition Ready."""
    found = condition(seeded.get("ModelServer", SERVER), "Ready")
    return str(found["message"]) if found else ""
