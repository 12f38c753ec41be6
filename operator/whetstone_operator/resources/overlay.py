"""Lay a part of an object over a whole one, by the rules of Kubernetes' strategic merge. Pure.

Maps are merged. Of lists, those in `MERGE_KEYS` are merged by the fields that tell their members apart, new members at
the end; those in `APPENDED` are joined; any other list replaces the one below it. Nothing can be taken away: a null is
an error, and so is a directive such as `$patch`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

MERGE_KEYS: Mapping[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "volumes": ("name",),
    "env": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "imagePullSecrets": ("name",),
    "resourceClaims": ("name",),
    "claims": ("name",),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
}
"""Fields that tell the members of a list apart, by the list's name (`x-kubernetes-patch-merge-key`)."""
APPENDED = frozenset({"tolerations"})
"""Lists without such fields whose members all count."""


class OverlayError(Exception):
    """An overlay cannot be merged, or says what it must not.

    Args:
        path: Where, as in `containers[engine].ports`.
        problem: What is wrong there, and the fix.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


def merge(below: Mapping[str, Any], above: Mapping[str, Any], *, path: str = "") -> dict[str, Any]:
    """Return `below` with `above` laid over it; both stay as they are.

    Args:
        below: The whole.
        above: The part.
        path: Where both lie, for messages.

    Raises:
        OverlayError: `above` has another shape than `below`, a null, or list members that cannot be told apart.
    """
    result = dict(below)
    for name, value in above.items():
        where = f"{path}.{name}" if path else name
        if name.startswith("$"):
            raise OverlayError(where, "directives are not known here; give the fields themselves")
        result[name] = _laid(result.get(name), value, name=name, path=where)
    return result


def members(items: Any, *, name: str, path: str) -> dict[str, Mapping[str, Any]]:
    """Return the members of a list of `MERGE_KEYS` by what tells them apart.

    Args:
        items: The list.
        name: Its name.
        path: Where it lies, for messages.

    Raises:
        OverlayError: It is no list of maps, or a member lacks a field or comes twice.
    """
    keys = MERGE_KEYS[name]
    if not isinstance(items, Sequence) or isinstance(items, str):
        raise OverlayError(path, "must be a list")
    found: dict[str, Mapping[str, Any]] = {}
    for place, item in enumerate(items):
        missing = [key for key in keys if not isinstance(item, Mapping) or not isinstance(item.get(key), str)]
        if missing:
            raise OverlayError(f"{path}[{place}]", f"needs {' and '.join(missing)}")
        identity = "/".join(item[key] for key in keys)
        if identity in found:
            raise OverlayError(f"{path}[{identity}]", "is there twice; leave one out")
        found[identity] = item
    return found


def _laid(below: Any, above: Any, *, name: str, path: str) -> Any:
    """Return one value laid over another, which is None where there is none."""
    if above is None:
        raise OverlayError(path, "must not be null; nothing can be taken away, leave it out")
    if isinstance(above, Mapping):
        if not isinstance(below, Mapping | None):
            raise OverlayError(path, "must not be a map")
        return merge(below or {}, above, path=path)
    if not isinstance(above, list):
        # A label may have the name of a list.
        return above
    if name in MERGE_KEYS:
        merged = dict(members(below or [], name=name, path=path))
        for identity, item in members(above, name=name, path=path).items():
            merged[identity] = merge(merged.get(identity, {}), item, path=f"{path}[{identity}]")
        return list(merged.values())
    return [*(below or []), *above] if name in APPENDED else list(above)
