"""A second small cluster beside the running one: started, kept, repaired after kills, replaced, and removed whole."""

import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.local_cluster import (
    NAME,
    absent_before_and_after,
    connects,
    down,
    kill,
    pids,
    pod_with_claim,
    traces,
    up,
)
from support.node import main_process
from support.waiting import eventually
from whetstone_dev.cluster import Cluster
from whetstone_dev.commands import run
from whetstone_dev.places import BUILD, CHECKOUT

pytestmark = pytest.mark.cluster
POD = "reader"


@pytest.fixture(scope="module")
def place() -> Iterator[Cluster]:
    """The cluster by name."""
    with absent_before_and_after() as cluster:
        yield cluster


@pytest.fixture
def cluster(place: Cluster) -> Cluster:
    """The running cluster; `up` starts it only when an earlier test left it down."""
    up()
    return place


def reader(cluster: Cluster) -> dict[str, Any]:
    """Return a running pod that mounts a claim of the same name."""
    return pod_with_claim(cluster, POD, claim=POD)


def host_address() -> str:
    """An address of this machine on a network that is not the clusters'."""
    links = json.loads(run(["ip", "-4", "-j", "addr", "show", "scope", "global", "up"]))
    outer = [link for link in links if not link["ifname"].startswith(("wh", "docker", "br-", "veth"))]
    assert outer, "this machine has no address on any network, so nothing outside can be tried"
    return str(outer[0]["addr_info"][0]["local"])


def test_up_keeps_a_running_cluster(cluster: Cluster) -> None:
    before = pids(cluster)
    assert len(before) == len(cluster.running())
    up()
    assert pids(cluster) == before


def test_claim_without_a_class_is_bound_and_shared(cluster: Cluster) -> None:
    reader(cluster)
    claim = json.loads(cluster.kubectl("get", "pvc", POD, "--output=json"))
    assert (claim["status"]["phase"], claim["status"]["accessModes"]) == ("Bound", ["ReadWriteMany"])


def test_pod_reaches_the_cluster_and_nothing_outside(cluster: Cluster) -> None:
    pid = main_process(reader(cluster), "main")
    with socket.create_server((host_address(), 0)) as server:
        outside = server.getsockname()
        socket.create_connection(outside, timeout=3).close()
        assert connects(pid, cluster.ranges.api_service, 443)
        assert not connects(pid, *outside)


def test_killed_kubelet_is_started_again_and_objects_survive(cluster: Cluster) -> None:
    pod = reader(cluster)
    before = pids(cluster)
    kill(before["kubelet"])
    up()
    after = pids(cluster)
    assert [name for name in after if after[name] != before[name]] == ["kubelet"]
    assert json.loads(cluster.kubectl("get", "pod", POD, "--output=json"))["metadata"]["uid"] == pod["metadata"]["uid"]


def test_rebooted_node_runs_its_pods_again(cluster: Cluster) -> None:
    pod = reader(cluster)
    before = pids(cluster)
    cluster.node().stop()
    up()
    listening = pids(cluster)["kubelet"]
    assert listening != before["kubelet"]

    def again() -> bool:
        same = json.loads(cluster.kubectl("get", "pod", POD, "--output=json"))
        assert same["metadata"]["uid"] == pod["metadata"]["uid"]
        [container] = same["status"]["containerStatuses"]
        return container["ready"] and container["restartCount"] > 0

    eventually(again, what="the pod runs again", seconds=60)
    assert pids(cluster)["kubelet"] == listening


def test_up_in_another_checkout_writes_a_kubeconfig_there(cluster: Cluster, tmp_path: Path) -> None:
    ours = pids(cluster)
    default = BUILD / "kubeconfig"
    before = default.read_text() if default.exists() else None
    shutil.copytree(CHECKOUT / "dev", tmp_path / "dev", ignore=shutil.ignore_patterns("__pycache__"))
    up(checkout=tmp_path)
    assert pids(cluster) == ours
    assert (tmp_path / "build" / f"kubeconfig-{NAME}").read_text() == cluster.plane.kubeconfig.read_text()
    assert (default.read_text() if default.exists() else None) == before


@pytest.mark.long
def test_down_leaves_nothing_and_up_starts_an_empty_cluster(cluster: Cluster) -> None:
    reader(cluster)
    down()
    assert traces(cluster) == []
    assert cluster.leftovers() == []
    up()
    assert cluster.kubectl("get", "pods,pvc,pv", "--output=name") == ""


@pytest.mark.long
def test_cluster_killed_as_a_whole_is_replaced(cluster: Cluster) -> None:
    pod = reader(cluster)
    kill(*pids(cluster).values())
    assert "stopped or crashed" in up()
    assert all(cluster.running().values())
    assert reader(cluster)["metadata"]["uid"] != pod["metadata"]["uid"]


@pytest.mark.long
def test_cluster_killed_as_a_whole_is_taken_down(cluster: Cluster) -> None:
    reader(cluster)
    kill(*pids(cluster).values())
    down()
    assert traces(cluster) == []


@pytest.mark.long
def test_cluster_of_another_layout_is_replaced(place: Cluster) -> None:
    """Its processes have no record that this code knows: what runs in its network namespace is ended."""
    down()
    place.folder.mkdir(parents=True)
    (place.folder / "site.json").write_text(json.dumps({"subnet": "10.249.0.0/16", "layout": 99}))
    run(["ip", "netns", "add", NAME])
    with subprocess.Popen(["nsenter", f"--net=/run/netns/{NAME}", "sleep", "60"]) as foreign:
        eventually(lambda: str(foreign.pid) in run(["ip", "netns", "pids", NAME]).split(), what="process in namespace")
        assert "another version of this project" in up()
        assert foreign.wait(timeout=1) != 0
    assert all(place.running().values())
    assert json.loads((place.folder / "site.json").read_text())["layout"] == 1


def test_kubelet_is_started_again_when_its_file_has_changed(cluster: Cluster) -> None:
    before = pids(cluster)
    pod = reader(cluster)
    # As when another version of this project started it: the record says what the kubelet has read.
    record = cluster.folder / "processes" / "kubelet.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "config": "of another version"}))
    up()
    after = pids(cluster)
    assert [name for name in after if after[name] != before[name]] == ["kubelet"]
    assert reader(cluster)["metadata"]["uid"] == pod["metadata"]["uid"]
