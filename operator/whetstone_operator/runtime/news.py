"""Which events of a watch say something new: controllers of Kubernetes write much that no reconcile of ours reads."""

import json
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

_BOOKKEEPING = frozenset({"resourceVersion", "managedFields"})
DELETED = "DELETED"


class News:
    """Remembers what was last heard of each object, as a hash.

    Args:
        unread: Of a kind's status, by the kind's plural, the fields that no reconcile reads; None: all of it.
    """

    def __init__(self, unread: Mapping[str, Iterable[str] | None]) -> None:
        self._unread = {plural: None if names is None else frozenset(names) for plural, names in unread.items()}
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
        if plural in self._unread:
            names = self._unread[plural]
            status = found.pop("status", None) or {}
            if names is not None:
                found["status"] = {name: value for name, value in status.items() if name not in names}
        return found
