"""A cluster of two nodes: what they share, what runs between them, the loss of one, and its removal."""

import json
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.local_cluster import (
    NAME,
    absent_before_and_after,
    apply,
    connects,
    dev,
    down,
    inside,
    kill,
    pids,
    pod_with_claim,
    root,
    traces,
    up,
)
from support.node import main_process
from support.waiting import eventually
from whetstone_dev import network
from whetstone_dev.cluster import Cluster
from whetstone_dev.commands import run

pytestmark = pytest.mark.cluster
FIRST, SECOND = NAME, f"{NAME}-2"
PORT = 8080
ASK = """
import socket, sys
with socket.socket(type=socket.SOCK_DGRAM) as question:
    question.settimeout(3)
    question.sendto(bytes.fromhex(sys.argv[2]), (sys.argv[1], 53))
    print(question.recv(512).hex())
"""
NOT_READY_SECONDS = 120.0


@pytest.fixture(scope="module")
def place() -> Iterator[Cluster]:
    """The cluster by name. It starts with one node, so that the second comes to a running cluster."""
    with absent_before_and_after() as cluster:
        up()
        yield cluster


@pytest.fixture
def cluster(place: Cluster) -> Cluster:
    """The running cluster with its two nodes."""
    up("--nodes", "2")
    return place


def pod_on(cluster: Cluster, node: str) -> dict[str, Any]:
    """Return a pod on a node that mounts the claim that all such pods share."""
    return pod_with_claim(cluster, "a" if node == FIRST else "b", claim="shared", node=node)


@contextmanager
def listening(pod: dict[str, Any]) -> Iterator[None]:
    """Answer HTTP in a pod's network."""
    pid = main_process(pod, "main")
    server = [sys.executable, "-m", "http.server", str(PORT), "--bind", "0.0.0.0", "--directory", "/proc/self/net"]
    with subprocess.Popen(inside(pid, *server), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            eventually(lambda: connects(pid, "127.0.0.1", PORT), what="the server")
            yield
        finally:
            process.terminate()


def resolve(pod: dict[str, Any], name: str) -> str:
    """Ask the name server that the kubelet gave to a pod, from the pod's network."""
    server = next(
        line.split()[1] for line in (root(pod) / "etc/resolv.conf").read_text().splitlines() if "nameserver" in line
    )
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    question = struct.pack(">6H", 1, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">2H", 1, 1)
    pid = main_process(pod, "main")
    answer = bytes.fromhex(run(inside(pid, sys.executable, "-c", ASK, server, question.hex())).strip())
    return ".".join(map(str, answer[-4:]))


def test_second_node_begins_with_the_first_ones_images(cluster: Cluster) -> None:
    stores = [cluster.node(index).image_store for index in (0, 1)]
    layers = [
        {path.stat().st_ino for path in store.glob("io.containerd.snapshotter.v1.overlayfs/snapshots/*/fs/nodehelper")}
        for store in stores
    ]
    assert layers[1]
    assert layers[1] <= layers[0]


def test_up_keeps_both_and_status_shows_both(cluster: Cluster) -> None:
    before = pids(cluster)
    up()
    assert pids(cluster) == before
    lines = [line.split() for line in dev("cluster", "status", "--name", NAME).splitlines()]
    assert ["node", FIRST, "Ready"] in lines
    assert ["node", SECOND, "Ready"] in lines
    assert {"kubelet", "kubelet-2", "containerd-2", "kube-proxy-2"} <= {name for name, *rest in lines}
    assert not [line for line in lines if line[1:] == ["not", "running"]]


def test_pods_of_the_two_nodes_reach_each_other_and_services(cluster: Cluster) -> None:
    pods = [pod_on(cluster, FIRST), pod_on(cluster, SECOND)]
    for here, there in (pods, reversed(pods)):
        name = there["metadata"]["name"]
        spec = {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": PORT}]}
        apply(cluster, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})
        service = json.loads(cluster.kubectl("get", "service", name, "--output=json"))["spec"]["clusterIP"]
        pid = main_process(here, "main")
        with listening(there):
            assert connects(pid, there["status"]["podIP"], PORT)
            eventually(lambda address=service, pid=pid: connects(pid, address, 80), what=f"Service {name}")
        assert resolve(here, f"{name}.default.svc.cluster.local") == service
        assert connects(pid, cluster.ranges.api_service, 443)


def test_claim_written_on_one_node_is_read_on_the_other(cluster: Cluster) -> None:
    one, other = pod_on(cluster, FIRST), pod_on(cluster, SECOND)
    assert (one["spec"]["nodeName"], other["spec"]["nodeName"]) == (FIRST, SECOND)
    (root(one) / "data/word").write_text("whetstone")
    assert (root(other) / "data/word").read_text() == "whetstone"
    (root(other) / "data/word").write_text("stone")
    assert (root(one) / "data/word").read_text() == "stone"


def test_second_node_pulls_from_the_registry(cluster: Cluster, images: dict[str, str]) -> None:
    container = {"name": "main", "image": images["task"], "imagePullPolicy": "Always"}
    spec = {"containers": [container], "nodeSelector": {"kubernetes.io/hostname": SECOND}}
    cluster.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=30s")
    apply(cluster, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "puller"}, "spec": spec})
    cluster.kubectl("wait", "--for=condition=Ready", "pod/puller", "--timeout=55s")


@pytest.mark.long
def test_lost_node_is_not_ready_and_comes_back(cluster: Cluster) -> None:
    pod = pod_on(cluster, FIRST)
    before = pids(cluster)
    kill(*(before[name] for name in ("kubelet-2", "containerd-2", "kube-proxy-2")))
    eventually(lambda: cluster.readiness()[SECOND] == "NotReady", what="node not ready", seconds=NOT_READY_SECONDS)
    assert cluster.readiness()[FIRST] == "Ready"
    up()
    assert cluster.readiness() == {FIRST: "Ready", SECOND: "Ready"}
    after = pids(cluster)
    assert {name for name in after if after[name] != before[name]} == {"kubelet-2", "containerd-2", "kube-proxy-2"}
    assert pod_on(cluster, FIRST)["metadata"]["uid"] == pod["metadata"]["uid"]


@pytest.mark.long
def test_node_that_is_not_wanted_any_more_goes_with_its_pods(cluster: Cluster) -> None:
    kept = pod_on(cluster, FIRST)
    pod_on(cluster, SECOND)
    before = pids(cluster)
    assert f"removing node {SECOND}" in up("--nodes", "1")
    assert cluster.readiness() == {FIRST: "Ready"}
    left = json.loads(cluster.kubectl("get", "pods", "--output=json"))["items"]
    assert [pod["metadata"]["uid"] for pod in left] == [kept["metadata"]["uid"]]
    marks = (SECOND, "node-2", network.link_name(NAME, 1))
    assert [trace for trace in traces(cluster) if any(mark in trace for mark in marks)] == []
    assert pids(cluster) == {name: pid for name, pid in before.items() if not name.endswith("-2")}
    assert "removing" not in up("--nodes", "1")


@pytest.mark.long
@pytest.mark.parametrize("crash", [False, True], ids=["running", "killed as a whole"])
def test_down_leaves_nothing_of_two_nodes(cluster: Cluster, *, crash: bool) -> None:
    pod_on(cluster, SECOND)
    if crash:
        kill(*pids(cluster).values())
    down()
    assert traces(cluster) == []
    assert cluster.leftovers() == []
