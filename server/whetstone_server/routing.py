"""Which routes the guard should hold: a pure function of what is wanted, what works and what was routed."""

from collections.abc import Collection

from whetstone_api.pod_state import AliasShare, DesiredState, GuardRoutes

Shares = list[AliasShare]


def plan_routes(
    desired: DesiredState,
    *,
    before: GuardRoutes,
    listed: Collection[str],
    effective: Collection[str],
    rejected: Collection[str],
    opened: bool,
) -> GuardRoutes:
    """Return the routes for the guard.

    A name moves only to a version that works here. Until then it keeps the version it had (no request fails while a
    successor loads), and a name that had none is pending.

    Args:
        desired: What the pod should hold.
        before: Routes that the guard holds.
        listed: Served names of the adapters that the engine lists now.
        effective: Wanted versions that are loaded and probed.
        rejected: Wanted versions that are known not to work.
        opened: Whether requests may pass.
    """
    kept = [name for name in before.versions if name in listed and name not in rejected]
    wanted = [adapter.served_name for adapter in desired.adapters]
    adapters: dict[str, str] = {}
    pending: list[str] = []
    for adapter in desired.adapters:
        if adapter.name in adapters or adapter.name in pending:
            continue
        old = before.adapters.get(adapter.name)
        if adapter.served_name in effective:
            adapters[adapter.name] = adapter.served_name
        elif old is not None and old in kept:
            adapters[adapter.name] = old
        else:
            pending.append(adapter.name)
    routed = _route_aliases(desired, before=before, effective=effective, kept=kept)
    pending += [alias for alias in _targets(desired) if alias not in routed]
    aliases = {alias: shares[0].served_name for alias, shares in routed.items() if len(shares) == 1}
    splits = {alias: shares for alias, shares in routed.items() if len(shares) > 1}
    split = {share.served_name for shares in splits.values() for share in shares} & {*effective, *kept}
    named = {*adapters.values(), *aliases.values(), *split} - {desired.base_name}
    versions = [name for name in wanted if name in effective or name in kept]
    versions += sorted(named - set(versions))
    pending += [name for name in wanted if name not in versions]
    return GuardRoutes(
        open=opened,
        base=desired.base_name,
        adapters=adapters,
        aliases=aliases,
        splits=splits,
        sampling=desired.sampling,
        versions=versions,
        pending=pending,
    )


def _route_aliases(
    desired: DesiredState, *, before: GuardRoutes, effective: Collection[str], kept: Collection[str]
) -> dict[str, Shares]:
    """Return the targets of each alias that can be answered.

    An alias with several targets moves as a whole. Where this pod can hold only some of them, requests for these are
    answered, and the others go to another pod.
    """
    routed: dict[str, Shares] = {}
    stood = _targets(before)
    for alias, shares in _targets(desired).items():
        old = stood.get(alias)
        able = [share.served_name for share in shares if share.weight > 0]
        works = [name == desired.base_name or name in effective for name in able]
        if all(works):
            routed[alias] = shares
        elif old and all(share.served_name == desired.base_name or share.served_name in kept for share in old):
            routed[alias] = old
        elif any(works):
            routed[alias] = shares
    return routed


def _targets(routes: DesiredState | GuardRoutes) -> dict[str, Shares]:
    single = {alias: [AliasShare(adapter=name, served_name=name, weight=1)] for alias, name in routes.aliases.items()}
    return {**single, **routes.splits}
