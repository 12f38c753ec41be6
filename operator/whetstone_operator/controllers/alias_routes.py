"""From what aliases serve to what pods are told: routes, and the versions that must stay for them. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from whetstone_api.aliases import AliasStatus
from whetstone_api.pod_state import AliasShare, DesiredAdapter

from whetstone_operator.controllers.adapters import ResolvedAdapter


@dataclass(frozen=True, kw_only=True)
class AliasRoutes:
    """How aliases resolve.

    Args:
        single: Served name by alias with one target.
        splits: Targets by alias with several.
    """

    single: dict[str, str] = field(default_factory=dict)
    splits: dict[str, list[AliasShare]] = field(default_factory=dict)

    @property
    def served(self) -> set[str]:
        """All that answers to an alias."""
        split = {share.served_name for shares in self.splits.values() for share in shares if share.weight > 0}
        return {*self.single.values(), *split}


def route_aliases(statuses: Sequence[AliasStatus], *, names: Collection[str]) -> AliasRoutes:
    """Return the routes of the aliases that the spec still has.

    Args:
        statuses: What aliases serve.
        names: Names of the spec's aliases.
    """
    routes = AliasRoutes()
    for status in statuses:
        if status.name not in names:
            continue
        if status.targets:
            routes.splits[status.name] = [
                AliasShare(adapter=one.adapter, served_name=one.served_name, weight=one.weight)
                for one in status.targets
            ]
        else:
            routes.single[status.name] = status.served_name
    return routes


def wanted_adapters(
    adapters: Sequence[ResolvedAdapter], *, held: Sequence[DesiredAdapter], routes: AliasRoutes
) -> list[DesiredAdapter]:
    """Return the current versions, then older ones of the server's adapters that an alias still serves.

    Args:
        adapters: The server's adapters with their versions.
        held: Versions that pods were told to hold before.
        routes: How aliases resolve.
    """
    served = routes.served
    current = [
        desired
        for adapter in adapters
        if (desired := adapter.to_desired(required=adapter.required or adapter.served_name in served))
    ]
    known, names = {item.served_name for item in current}, {adapter.name for adapter in adapters}
    kept = [
        item.model_copy(update={"required": True})
        for item in held
        if item.served_name in served - known and item.name in names
    ]
    return current + kept
