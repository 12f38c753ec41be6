"""Which events of a watch say something new: controllers of Kubernetes write much that no reconcile of ours reads."""

import json
from collections.abc import Callable, Hashable, Mapping
from typing import Any

_BOOKKEEPING = frozenset({"resourceVersion", "managedFields"})
DELETED = "DELETED"


class News:
    """Remembers what was last heard of each object, as a hash.

    Args:
        read: By a kind's plural, what reconciles read of its status; of kinds without an entry they read all of it.
    """

    def __init__(self, read: Mapping[str, Callable[[dict[str, Any]], Any]]) -> None:
        self._read_status = read
        self._heard: dict[Hashable, int] = {}

    def is_news(self, plural: str, event: Mapping[str, Any]) -> bool:
        """Return whether an event tells more than the last one of its object; it counts as heard from now on.

        Args:
            plural: The kind's plural.
            event: `type` and `object`, as in the watch; no type for what was there before the watch.
        """
        obj = event["object"]
        metadata = obj["metadata"]
        key = (plural, metadata.get("namespace"), metadata["name"])
        if event.get("type") == DELETED:
            self._heard.pop(key, None)
            return True
        told = hash(json.dumps(self._read(plural, obj), sort_keys=True))
        before, self._heard[key] = self._heard.get(key), told
        return before != told

    def _read(self, plural: str, obj: Mapping[str, Any]) -> dict[str, Any]:
        """Return the part of an object that reconciles read."""
        metadata = {name: value for name, value in obj["metadata"].items() if name not in _BOOKKEEPING}
        found = {**obj, "metadata": metadata}
        read = self._read_status.get(plural)
        return found if read is None else {**found, "status": read(obj.get("status") or {})}
