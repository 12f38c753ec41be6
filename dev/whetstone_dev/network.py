"""The network namespaces of a cluster's nodes: addresses, links to host and neighbour, routes; no way out."""

import fcntl
import hashlib
import ipaddress
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from whetstone_dev.commands import DevError, run, succeeds

_LOCK = Path("/run/lock/whetstone-addresses")
_NEIGHBOUR = "eth1"
_CANDIDATES = [f"10.{second}.0.0/16" for second in range(200, 250)] + [f"172.{n}.0.0/16" for n in range(24, 32)]


@dataclass(frozen=True)
class Ranges:
    """The addresses of one cluster, all inside one /16 block.

    Block x.y: x.y.0.0/24 links host and nodes (host .1, nodes .2, .6, each on a /30) and the two nodes with each other
    (.129 and .130), x.y.16.0/20 are Services, x.y.64.0/18 and x.y.128.0/18 are the pods of the first and second node.
    """

    block: str

    def _address(self, offset: int) -> str:
        return str(ipaddress.ip_network(self.block)[offset])

    def host(self, index: int = 0) -> str:
        """The host's end of the link to node `index` (0 is the first)."""
        return self._address(4 * index + 1)

    def node(self, index: int = 0) -> str:
        """The address of node `index`."""
        return self._address(4 * index + 2)

    def link(self, index: int = 0) -> str:
        """The network of the link between the host and node `index`."""
        return f"{self._address(4 * index)}/30"

    def neighbour(self, index: int) -> str:
        """The address of node `index` on the link between the two nodes."""
        return self._address(129 + index)

    @property
    def services(self) -> str:
        """The range of Service addresses."""
        return f"{self._address(16 * 256)}/20"

    @property
    def api_service(self) -> str:
        """The address of the Service `kubernetes`, which the API server is certified for."""
        return self._address(16 * 256 + 1)

    def pods(self, index: int = 0) -> str:
        """The range of pod addresses of node `index`."""
        return f"{self._address((64 + 64 * index) * 256)}/18"


def link_name(cluster: str, index: int = 0) -> str:
    """The host's end of the link to a node; the kernel allows 15 characters."""
    return "wh" + hashlib.sha256(cluster.encode()).hexdigest()[:8] + (f"-{index + 1}" if index else "")


def used_networks() -> list[ipaddress.IPv4Network]:
    """Every IPv4 network that the host has an address in or a route to, the default route apart."""
    found: list[ipaddress.IPv4Network] = []
    for route in json.loads(run(["ip", "-4", "-j", "route", "show", "table", "all"]) or "[]"):
        destination = route.get("dst", "default")
        if destination != "default":
            found.append(ipaddress.IPv4Network(destination, strict=False))
    return found


def free_block(used: Iterable[ipaddress.IPv4Network]) -> str:
    """The first candidate /16 block that overlaps none of the used networks.

    Raises:
        DevError: every candidate is taken.
    """
    taken = list(used)
    for candidate in _CANDIDATES:
        if not any(network.overlaps(ipaddress.IPv4Network(candidate)) for network in taken):
            return candidate
    raise DevError("no free address range: 10.200 to 10.249 and 172.24 to 172.31 all overlap the host's routes")


@contextmanager
def choosing() -> Iterator[None]:
    """Hold while a block is chosen and until its routes are there: by them other clusters see that it is taken.

    The lock is the machine's, since clusters of several checkouts and state folders share its addresses.
    """
    _LOCK.parent.mkdir(parents=True, exist_ok=True)
    with _LOCK.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def exists(namespace: str) -> bool:
    """Whether the network namespace is there."""
    return Path(f"/run/netns/{namespace}").exists()


def members(namespace: str) -> list[int]:
    """The ids of all processes in the network namespace; pods have namespaces of their own."""
    return [int(pid) for pid in run(["ip", "netns", "pids", namespace]).split()] if exists(namespace) else []


def create(namespace: str, *, link: str, ranges: Ranges, index: int = 0) -> None:
    """Make the namespace of node `index`, its link to the host and the host's routes to pods and Services.

    There is no default route inside, so nothing that runs there can reach beyond the machine.
    """
    host, node = ranges.host(index), ranges.node(index)
    if not exists(namespace):
        run(["ip", "netns", "add", namespace])
    inside = ["ip", "-n", namespace]
    if not present(link):
        run(["ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", namespace])
    run(["ip", "addr", "replace", f"{host}/30", "dev", link])
    run(["ip", "link", "set", link, "up"])
    run([*inside, "link", "set", "lo", "up"])
    run([*inside, "addr", "replace", f"{node}/30", "dev", "eth0"])
    run([*inside, "link", "set", "eth0", "up"])
    run(["ip", "route", "replace", ranges.pods(index), "via", node])
    if index == 0:
        run(["ip", "route", "replace", ranges.services, "via", node])
    _serve_services(namespace, ranges=ranges, node=node)


def connect(first: str, second: str, *, ranges: Ranges) -> None:
    """Link the namespaces of the two nodes, and route to each what the other holds.

    The host forwards nothing between nodes: that would take a setting of the host's and an opening in its firewall.
    """
    if not succeeds(["ip", "-n", first, "link", "show", "dev", _NEIGHBOUR]):
        run(
            [
                *("ip", "-n", first, "link", "add", _NEIGHBOUR, "type", "veth"),
                *("peer", "name", _NEIGHBOUR, "netns", second),
            ]
        )
    for index, namespace in enumerate((first, second)):
        inside = ["ip", "-n", namespace]
        run([*inside, "addr", "replace", f"{ranges.neighbour(index)}/30", "dev", _NEIGHBOUR])
        run([*inside, "link", "set", _NEIGHBOUR, "up"])
    for index, namespace in enumerate((first, second)):
        other = 1 - index
        for destination in (ranges.link(other), ranges.pods(other)):
            route = [destination, "via", ranges.neighbour(other), "src", ranges.node(index)]
            run(["ip", "-n", namespace, "route", "replace", *route])


def _serve_services(namespace: str, *, ranges: Ranges, node: str) -> None:
    """Let connections that start on the node reach Services, and refuse at once what no Service answers.

    A blackhole route would drop the node's own connections before kube-proxy translates them. As local addresses
    they pass its rules first; what is still untranslated on arrival is rejected.
    """
    run(["ip", "-n", namespace, "route", "replace", "local", ranges.services, "dev", "lo", "src", node])
    enter = ["nsenter", f"--net=/run/netns/{namespace}"]
    run([*enter, "sysctl", "-qw", "net.ipv4.ip_forward=1"])
    if Path("/proc/sys/net/bridge/bridge-nf-call-iptables").exists():
        run([*enter, "sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=1"])
    rule = ["INPUT", "-d", ranges.services, "-j", "REJECT"]
    if not succeeds([*enter, "iptables", "-w", "-C", *rule]):
        run([*enter, "iptables", "-w", "-A", *rule])


def present(link: str) -> bool:
    """Whether the host has the link."""
    return Path(f"/sys/class/net/{link}").exists()


def delete(namespace: str, *, link: str) -> None:
    """Remove the link with the host's routes over it, and the namespace; what is already gone is no error."""
    if present(link):
        run(["ip", "link", "delete", link])
    if exists(namespace):
        run(["ip", "netns", "delete", namespace])
