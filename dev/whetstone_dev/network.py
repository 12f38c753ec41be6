"""The cluster's own network namespace: address ranges, the link to the host, routes; no way out of the machine."""

import ipaddress
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from whetstone_dev.commands import DevError, run, succeeds

_CANDIDATES = [f"10.{second}.0.0/16" for second in range(200, 250)] + [f"172.{n}.0.0/16" for n in range(24, 32)]


@dataclass(frozen=True)
class Ranges:
    """The addresses of one cluster, all inside one /16 block.

    Block x.y: x.y.0.0/24 links host and nodes (host .1, nodes .2, .6, ... each on a /30), x.y.16.0/20 are Services,
    x.y.64.0/18 and x.y.128.0/18 are the pods of the first and second node.
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
    if not succeeds(["ip", "link", "show", "dev", link]):
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


def delete(namespace: str, *, link: str, ranges: Ranges | None) -> None:
    """Remove the link, the routes and the namespace; what is already gone is no error."""
    if succeeds(["ip", "link", "show", "dev", link]):
        run(["ip", "link", "delete", link])
    if ranges is not None:
        for destination in (ranges.services, ranges.pods(0), ranges.pods(1)):
            succeeds(["ip", "route", "delete", destination])
    if exists(namespace):
        run(["ip", "netns", "delete", namespace])
