"""Which routes the guard should hold: a pure function of what is wanted, what works and what was routed."""

from collections.abc import Collection

from whetstone_api.pod_state import DesiredState, GuardRoutes


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
    aliases: dict[str, str] = {}
    for alias, target in desired.aliases.items():
        old = before.aliases.get(alias)
        if target == desired.base_name or target in effective:
            aliases[alias] = target
        elif old is not None and (old == desired.base_name or old in kept):
            aliases[alias] = old
        else:
            pending.append(alias)
    named = {*adapters.values(), *aliases.values()} - {desired.base_name}
    versions = [name for name in wanted if name in effective or name in kept]
    versions += sorted(named - set(versions))
    pending += [name for name in wanted if name not in versions]
    return GuardRoutes(
        open=opened, base=desired.base_name, adapters=adapters, aliases=aliases, versions=versions, pending=pending
    )
