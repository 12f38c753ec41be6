"""Turns: how many servers an upgrade of the operator restarts at a time.

Whose turn it is stands on the Deployments; here is what watches have told of them, and who waits. Nothing is lost with
it: who waits asks again at each look.
"""

from collections.abc import Callable, Mapping
from typing import Any

from whetstone_api.vocabulary import Annotation, Label

from whetstone_operator.kinds import DEPLOYMENT, MODEL_SERVER, Key, Kind
from whetstone_operator.runtime.news import DELETED


class Upgrades:
    """The servers that are being restarted, and those that wait.

    Args:
        limit: Servers at a time; 0 for none.
        mark: Makes a key due.
    """

    def __init__(self, limit: int, mark: Callable[[Key], None]) -> None:
        self.limit = limit
        self._mark = mark
        self._taken: set[Key] = set()
        self._told: set[Key] = set()
        self._waiting: dict[Key, None] = {}

    @property
    def under_way(self) -> list[Key]:
        """Servers whose turn it is."""
        return sorted(self._taken | self._told)

    def heard(self, kind: Kind, event: Mapping[str, Any]) -> None:
        """Take over what a watch tells of a Deployment."""
        metadata = event["object"]["metadata"]
        server = (metadata.get("labels") or {}).get(Label.MODEL_SERVER)
        if kind is not DEPLOYMENT or server is None:
            return
        key = Key(MODEL_SERVER.plural, metadata["namespace"], server)
        if event.get("type") == DELETED:
            self.leave(key)
        elif Annotation.UPGRADE in (metadata.get("annotations") or {}):
            self._told.add(key)
        elif key in self._told:
            self._told.discard(key)
            self._wake()

    def take(self, key: Key) -> bool:
        """Return whether it is a server's turn; if not, it becomes due when it may be."""
        if key not in self._taken and key not in self._told:
            if len(self._taken | self._told) >= self.limit:
                self._waiting[key] = None
                return False
            self._taken.add(key)
        self._waiting.pop(key, None)
        self._wake()
        return True

    def leave(self, key: Key) -> None:
        """Let the next one have its turn: a server is through, needs none, or is gone."""
        self._taken.discard(key)
        self._told.discard(key)
        self._waiting.pop(key, None)
        self._wake()

    def _wake(self) -> None:
        free = max(self.limit - len(self._taken | self._told), 0)
        for key in list(self._waiting)[:free]:
            self._mark(key)
