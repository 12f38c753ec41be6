"""From what aliases serve to what pods are told: routes, and the versions that must stay for them. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from whetstone_api.aliases import HISTORY_SHOWN, AliasMove, AliasStatus
from whetstone_api.pod_state import AliasShare, DesiredAdapter
from whetstone_api.vocabulary import AliasMoveReason

from whetstone_operator.controllers.adapters import ResolvedAdapter
from whetstone_operator.controllers.aliases import Move
from whetstone_operator.runtime.clock import to_rfc3339


@dataclass(frozen=True, kw_only=True)
class AliasRoutes:
    """How aliases resolve.

    Args:
        single: Served name by alias with one target.
        splits: Targets by alias with several.
        standby: Versions that a rollback would move to, which must be at hand then.
    """

    single: dict[str, str] = field(default_factory=dict)
    splits: dict[str, list[AliasShare]] = field(default_factory=dict)
    standby: set[str] = field(default_factory=set)

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
        if status.previous and status.reason == AliasMoveReason.PROMOTION:
            routes.standby.add(status.previous)
    return routes


def moved_status(name: str, *, before: AliasStatus | None, move: Move, now: datetime) -> AliasStatus:
    """Return an alias's status after a move.

    Args:
        name: Name of the alias.
        before: Its status so far.
        move: The move.
        now: Time of this reconcile.
    """
    time = to_rfc3339(now)
    entry = AliasMove(
        time=time, reason=move.cause, served_name=move.served_name, digest=move.digest, benchmark_run=move.run
    )
    previous = before.served_name if before else None
    if before is not None and before.served_name == move.served_name:
        previous = before.previous
    return AliasStatus(
        name=name,
        adapter=move.adapter,
        served_name=move.served_name,
        digest=move.digest,
        since=time,
        benchmark_run=move.run,
        targets=list(move.targets) or None,
        previous=previous,
        history=[entry, *((before.history if before else None) or [])][:HISTORY_SHOWN],
    )


def wanted_adapters(
    adapters: Sequence[ResolvedAdapter],
    *,
    held: Sequence[DesiredAdapter],
    routes: AliasRoutes,
    measured: Collection[str] = (),
) -> list[DesiredAdapter]:
    """Return the current versions, then older ones that an alias still serves or may return to.

    Args:
        adapters: The server's adapters with their versions.
        held: Versions that pods were told to hold before.
        routes: How aliases resolve.
        measured: Versions that benchmarks measure now; they stay, even where their adapter has left the spec.
    """
    served = routes.served
    current = [
        desired
        for adapter in adapters
        if (desired := adapter.to_desired(required=adapter.required or adapter.served_name in served))
    ]
    known, names = {item.served_name for item in current}, {adapter.name for adapter in adapters}
    kept = [
        item.model_copy(update={"required": item.served_name in served})
        for item in held
        if (item.served_name in (served | routes.standby) - known and item.name in names)
        or (item.served_name in measured and item.served_name not in known)
    ]
    return current + kept
