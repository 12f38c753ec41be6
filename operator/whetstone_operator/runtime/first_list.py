"""What was read of objects at the start. Their watch begins with a list of its own, which tells the same once more.

Without this, a restart with many objects reconciles those twice whose turn came between the two lists.
"""

from collections.abc import Hashable, Mapping
from typing import Any


class FirstList[K: Hashable]:
    """The version of each object that was read and made due, until its watch has told of it."""

    def __init__(self) -> None:
        self._versions: dict[K, str] = {}

    def take(self, key: K, obj: Mapping[str, Any]) -> None:
        """Remember an object that was made due."""
        self._versions[key] = obj["metadata"]["resourceVersion"]

    def repeats(self, key: K, event: Mapping[str, Any]) -> bool:
        """Return whether an event only tells what was read; later ones of the object never do.

        Args:
            key: The object's key.
            event: `type` and `object`, as in the watch; no type for what was there before the watch.
        """
        version = self._versions.pop(key, None)
        return event["type"] is None and version == event["object"]["metadata"]["resourceVersion"]
