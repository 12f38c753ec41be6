"""Which events of a watch say something new: controllers of Kubernetes write much that no reconcile of ours reads."""

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from pydantic_core import to_json

_BOOKKEEPING = frozenset({"resourceVersion", "managedFields"})
DELETED = "DELETED"


class News:
    """Remembers what was last heard of each object, as a hash.

    Args:
        read: By a kind's plural, what reconciles read of its objects; None where they read nothing. Of kinds without
            an entry they read all.
    """

    def __init__(self, read: Mapping[str, Callable[[dict[str, Any]], Any]]) -> None:
        self._read = read
        self._heard: dict[Hashable, int] = {}

    def is_news(self, plural: str, event: Mapping[str, Any]) -> bool:
        """Return whether an event tells more than the last one of its object; it counts as heard from now on.

        Args:
            plural: The kind's plural.
            event: `type` and `object`, as in the watch; no type for what was there before the watch.
        """
        obj = event["object"]
        metadata = {name: value for name, value in obj["metadata"].items() if name not in _BOOKKEEPING}
        key = (plural, metadata.get("namespace"), metadata["name"])
        read = self._read.get(plural, _all)({**obj, "metadata": metadata})
        before = self._heard.pop(key, None)
        if event.get("type") == DELETED:
            return before is not None or read is not None
        if read is None:
            return before is not None
        told = self._heard[key] = hash(to_json(read))
        return before != told


def _all(obj: dict[str, Any]) -> Any:
    return obj
