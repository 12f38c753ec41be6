"""NetworkPolicies that hold: a policy engine beside the kube-proxy of a cluster that a test has of its own.

The network of the local cluster enforces none, as networks may, and most tests say what then happens.
"""

from pathlib import Path

from whetstone_dev import packages
from whetstone_dev.cluster import Cluster
from whetstone_dev.commands import run
from whetstone_dev.gobuild import KUBE_ROUTER, build

_NAME = "kube-router"
_CHAIN = "KUBE-ROUTER-FORWARD"


def enforce(cluster: Cluster) -> None:
    """Enforce NetworkPolicies on the first node from now on, until the cluster goes.

    The engine ends with the node's network namespace: its own way to take its rules back fails without its other parts.

    Raises:
        DevError: The engine cannot be built, or does not start.
    """
    packages.install(packages.POLICIES)
    node = cluster.node()
    command: list[str | Path] = [
        build(KUBE_ROUTER),
        f"--kubeconfig={cluster.plane.kubeconfig}",
        f"--hostname-override={node.name}",
        f"--service-cluster-ip-range={cluster.ranges.services}",
        "--run-firewall=true",
        "--run-router=false",
        "--run-service-proxy=false",
        "--health-port=0",
    ]
    cluster.plane.processes.start(_NAME, command, namespace=node.namespace)
    cluster.plane.wait_for(lambda: _rules(node.namespace), processes=[_NAME], timeout=60)


def _rules(namespace: str) -> bool:
    return _CHAIN in run(["nsenter", f"--net=/run/netns/{namespace}", "iptables-save"])
