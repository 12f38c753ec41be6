"""A local cluster of the tests' own, beside the running one: started, looked into, and what is left of it found."""

import hashlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.node import main_process
from support.waiting import eventually
from whetstone_dev import image_store, network
from whetstone_dev.cluster import Cluster
from whetstone_dev.commands import run, succeeds
from whetstone_dev.node import HELPER_IMAGE
from whetstone_dev.places import BUILD, CHECKOUT
from whetstone_dev.policies import enforce
from whetstone_dev.processes import start_time

NAME = "whetstone-test-" + hashlib.sha256(str(CHECKOUT).encode()).hexdigest()[:6]
"""Of this checkout: test runs of two checkouts at once must not take down each other's cluster."""
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=3)"


@contextmanager
def absent_before_and_after() -> Iterator[Cluster]:
    """The cluster by name, absent before and after; its image stores go too."""
    cluster = Cluster(NAME)
    down()
    yield cluster
    down()
    cluster.forget_images()


@contextmanager
def enforcing() -> Iterator[Cluster]:
    """The same cluster, started, with a network whose policies hold."""
    with absent_before_and_after() as cluster:
        up()
        enforce(cluster)
        yield cluster


def dev(*arguments: str, checkout: Path = CHECKOUT) -> str:
    """Run a development command as the Makefile does, and return what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "dev")}
    return run([sys.executable, "-m", "whetstone_dev", *arguments], env=environment, timeout=300)


def up(*arguments: str, checkout: Path = CHECKOUT) -> str:
    """Start or repair the test's cluster."""
    return dev("cluster", "up", "--name", NAME, *arguments, checkout=checkout)


def down() -> str:
    """Take the test's cluster down."""
    return dev("cluster", "down", "--name", NAME)


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
    groups = Path("/sys/fs/cgroup")
    links = Path("/sys/class/net").glob(f"{network.link_name(NAME)}*")
    found += map(str, (*Path("/run/netns").glob(f"{NAME}*"), *links))
    found += map(str, (*groups.glob(f"*/{NAME}*"), *groups.glob(f"{NAME}*")))
    copied = image_store.of(f"{NAME}-2")
    found += [str(folder) for folder in (cluster.folder, copied) if folder.exists()]
    found += [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f"/{NAME}" in line]
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


def pod_with_claim(cluster: Cluster, name: str, *, claim: str, node: str | None = None) -> dict[str, Any]:
    """Return a running pod, on a node if one is named, that mounts a claim of the default storage class."""
    wanted = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Mi"}}}
    container = {
        "name": "main",
        "image": HELPER_IMAGE,
        "imagePullPolicy": "Never",
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    spec: dict[str, Any] = {
        "containers": [container],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
    }
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    cluster.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=30s")
    apply(
        cluster,
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": claim}, "spec": wanted},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": spec},
    )
    cluster.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=55s")
    pod: dict[str, Any] = json.loads(cluster.kubectl("get", "pod", name, "--output=json"))
    return pod


def inside(pid: int, *command: str) -> list[str]:
    """The command that runs a program in the network of process `pid`."""
    return ["nsenter", f"--target={pid}", "--net", *command]


def connects(pid: int, address: str, port: int) -> bool:
    """Whether a process in the network of process `pid` can connect."""
    return succeeds(inside(pid, sys.executable, "-c", CONNECT, address, str(port)))


def root(pod: dict[str, Any]) -> Path:
    """The file system of a pod's container, as this machine sees it."""
    return Path(f"/proc/{main_process(pod, 'main')}/root")
