"""Turns: how many servers an upgrade of the operator restarts at a time.

Whose turn it is stands on the Deployments; here is what watches have told of them, and who waits. Nothing is lost with
it: who waits asks again at each look.
"""

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final

from whetstone_api.vocabulary import Annotation, Label

from whetstone_operator.kinds import DEPLOYMENT, MODEL_SERVER, Key, Kind
from whetstone_operator.runtime.news import DELETED

NEAR: Final = 20
"""Servers that wait and say whose turn it is; the others are too far from their turn for it to matter."""


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
        self._woken_for: list[Key] = []

    def before(self, key: Key) -> list[Key] | None:
        """Return the servers whose turn it is, to be told by one that waits; None for one that is far from its turn.

        Those that are near are woken when it is others' turn. With a long line, to wake all would be too much.
        """
        return self.under_way if key in self._near() else None

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
            self._wake()
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
        under_way = self.under_way
        free = max(self.limit - len(under_way), 0)
        due = list(islice(self._waiting, free))
        if not free and under_way != self._woken_for:
            self._woken_for, due = under_way, self._near()
        for key in due:
            self._mark(key)

    def _near(self) -> list[Key]:
        return list(islice(self._waiting, max(self.limit, NEAR)))
