"""What NetworkPolicies mean together: who may connect to whom, by the rules of Kubernetes.

Source: https://kubernetes.io/docs/concepts/services-networking/network-policies/
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Place:
    """A pod, or an address outside the cluster.

    Args:
        namespace: Namespace of a pod; empty for what is no pod.
        labels: Its labels.
        address: Its address.
    """

    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    address: str = "10.1.0.1"


def connects(
    policies: Sequence[Mapping[str, Any]], source: Place, target: Place, *, port: int, protocol: str = "TCP"
) -> bool:
    """Return whether a connection comes through.

    Args:
        policies: All NetworkPolicies.
        source: Who connects.
        target: To whom.
        port: Port of the target.
        protocol: TCP or UDP.
    """
    ways = (("Egress", source, target), ("Ingress", target, source))
    return all(_passes(policies, way, one, other, (protocol, port)) for way, one, other in ways)


def _passes(policies: Sequence[Mapping[str, Any]], way: str, one: Place, other: Place, asked: tuple[str, int]) -> bool:
    chosen = [policy for policy in policies if _chooses(policy, one) and way in policy["spec"]["policyTypes"]]
    if not chosen:
        return True
    rules = [(policy, rule) for policy in chosen for rule in policy["spec"].get(way.lower()) or []]
    return any(_opens(policy, rule, way, other, asked) for policy, rule in rules)


def _chooses(policy: Mapping[str, Any], place: Place) -> bool:
    own = policy["metadata"]["namespace"] == place.namespace
    return own and _selects(policy["spec"]["podSelector"], place.labels)


def _opens(policy: Mapping[str, Any], rule: Mapping[str, Any], way: str, other: Place, asked: tuple[str, int]) -> bool:
    peers = rule.get("from" if way == "Ingress" else "to")
    ports = [(one["protocol"], one["port"]) for one in rule.get("ports", [])]
    near = not peers or any(_is_peer(peer, policy["metadata"]["namespace"], other) for peer in peers)
    return near and (not ports or asked in ports)


def _is_peer(peer: Mapping[str, Any], own: str, place: Place) -> bool:
    if block := peer.get("ipBlock"):
        address = ip_address(place.address)
        excepted = any(address in ip_network(one) for one in block.get("except") or [])
        return address in ip_network(block["cidr"]) and not excepted
    if not place.namespace:
        return False
    names = {"kubernetes.io/metadata.name": place.namespace}
    chosen = _selects(peer["namespaceSelector"], names) if "namespaceSelector" in peer else place.namespace == own
    return chosen and _selects(peer.get("podSelector") or {}, place.labels)


def _selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    for one in selector.get("matchExpressions", []):
        if one["operator"] != "DoesNotExist":
            raise NotImplementedError(one["operator"])
        if one["key"] in labels:
            return False
    return selector.get("matchLabels", {}).items() <= labels.items()
