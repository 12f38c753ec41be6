"""A second small cluster beside the running one: started, kept, repaired after kills, replaced, and removed whole."""

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.node import main_process
from support.waiting import eventually
from whetstone_dev.cluster import Cluster
from whetstone_dev.commands import run, succeeds
from whetstone_dev.node import HELPER_IMAGE
from whetstone_dev.places import BUILD, CHECKOUT
from whetstone_dev.processes import start_time

pytestmark = pytest.mark.cluster
NAME = "whetstone-test-" + hashlib.sha256(str(CHECKOUT).encode()).hexdigest()[:6]
"""Of this checkout: test runs of two checkouts at once must not take down each other's cluster."""
POD = "reader"
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=3)"


def dev(*arguments: str, checkout: Path = CHECKOUT) -> str:
    """Run a development command as the Makefile does, and return what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "dev")}
    return run([sys.executable, "-m", "whetstone_dev", *arguments], env=environment, timeout=300)


def up(*, checkout: Path = CHECKOUT) -> str:
    """Start or repair the test's cluster."""
    return dev("cluster", "up", "--name", NAME, checkout=checkout)


def down() -> str:
    """Take the test's cluster down."""
    return dev("cluster", "down", "--name", NAME)


@pytest.fixture(scope="module")
def place() -> Iterator[Cluster]:
    """The cluster by name, absent before and after; its image store goes too."""
    cluster = Cluster(NAME)
    down()
    yield cluster
    node = cluster.node
    down()
    node.forget_images()


@pytest.fixture
def cluster(place: Cluster) -> Cluster:
    """The running cluster; `up` starts it only when an earlier test left it down."""
    up()
    return place


def pids(cluster: Cluster) -> dict[str, int]:
    """Every recorded process that runs."""
    processes = cluster.plane.processes
    return {name: pid for name in processes.names() if (pid := processes.pid(name)) is not None}


def kill(*victims: int) -> None:
    """Kill processes without warning, and return when they are gone."""
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: all(start_time(pid) is None for pid in victims), what="killed processes gone")


def traces(cluster: Cluster) -> list[str]:
    """What the machine still has of the cluster, found without asking the cluster's own code."""
    found = [f"process {pid}: {line}" for pid, line in command_lines() if f"{cluster.folder}/" in line]
    kernel = (
        Path("/run/netns") / NAME,
        Path("/sys/class/net") / cluster.link,
        *Path("/sys/fs/cgroup").glob(f"*/{NAME}"),
    )
    found += [str(path) for path in (*kernel, Path("/sys/fs/cgroup") / NAME, cluster.folder) if path.exists()]
    found += [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f"/{NAME}/" in line]
    logs = Path("/var/log/containers").glob("*.log")
    found += [str(link) for link in logs if link.is_symlink() and cluster.folder in link.readlink().parents]
    kubeconfig = BUILD / f"kubeconfig-{NAME}"
    return [*found, str(kubeconfig)] if kubeconfig.exists() else found


def command_lines() -> Iterator[tuple[int, str]]:
    """Every process with its command line."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield int(path.parent.name), path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue


def apply(cluster: Cluster, *documents: dict[str, Any]) -> None:
    """Apply objects to the namespace `default`."""
    feed = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
    cluster.kubectl("apply", "--server-side", "--filename=-", feed=feed)


def pod_with_claim(cluster: Cluster) -> dict[str, Any]:
    """Return a running pod that mounts a claim of the default storage class."""
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Mi"}}}
    container = {
        "name": "main",
        "image": HELPER_IMAGE,
        "imagePullPolicy": "Never",
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    spec = {"containers": [container], "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": POD}}]}
    cluster.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=30s")
    apply(
        cluster,
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": POD}, "spec": claim},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": POD}, "spec": spec},
    )
    cluster.kubectl("wait", "--for=condition=Ready", f"pod/{POD}", "--timeout=55s")
    pod: dict[str, Any] = json.loads(cluster.kubectl("get", "pod", POD, "--output=json"))
    return pod


def connects(pid: int, address: str, port: int) -> bool:
    """Whether a process in the network of process `pid` can connect."""
    enter = ["nsenter", f"--target={pid}", "--net", sys.executable, "-c", CONNECT, address, str(port)]
    return succeeds(enter)


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
    pod_with_claim(cluster)
    claim = json.loads(cluster.kubectl("get", "pvc", POD, "--output=json"))
    assert (claim["status"]["phase"], claim["status"]["accessModes"]) == ("Bound", ["ReadWriteMany"])


def test_pod_reaches_the_cluster_and_nothing_outside(cluster: Cluster) -> None:
    pid = main_process(pod_with_claim(cluster), "main")
    with socket.create_server((host_address(), 0)) as server:
        outside = server.getsockname()
        socket.create_connection(outside, timeout=3).close()
        assert connects(pid, cluster.ranges.api_service, 443)
        assert not connects(pid, *outside)


def test_killed_kubelet_is_started_again_and_objects_survive(cluster: Cluster) -> None:
    pod = pod_with_claim(cluster)
    before = pids(cluster)
    kill(before["kubelet"])
    up()
    after = pids(cluster)
    assert [name for name in after if after[name] != before[name]] == ["kubelet"]
    assert json.loads(cluster.kubectl("get", "pod", POD, "--output=json"))["metadata"]["uid"] == pod["metadata"]["uid"]


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
    pod_with_claim(cluster)
    down()
    assert traces(cluster) == []
    assert cluster.leftovers() == []
    up()
    assert cluster.kubectl("get", "pods,pvc,pv", "--output=name") == ""


@pytest.mark.long
def test_cluster_killed_as_a_whole_is_replaced(cluster: Cluster) -> None:
    pod = pod_with_claim(cluster)
    kill(*pids(cluster).values())
    assert "stopped or crashed" in up()
    assert all(cluster.running().values())
    assert pod_with_claim(cluster)["metadata"]["uid"] != pod["metadata"]["uid"]


@pytest.mark.long
def test_cluster_killed_as_a_whole_is_taken_down(cluster: Cluster) -> None:
    pod_with_claim(cluster)
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
