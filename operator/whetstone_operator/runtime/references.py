"""Which object waits for which: a change of one wakes those that depend on it.

Held in memory only. After a restart every object is reconciled once and declares its references again.
"""

from collections import defaultdict

from whetstone_operator.kinds import Key

ANY = "*"
"""Name that stands for every object of a kind in a namespace."""


class References:
    """The declared dependencies of all objects."""

    def __init__(self) -> None:
        self._targets: dict[Key, frozenset[Key]] = {}
        self._dependents: defaultdict[Key, set[Key]] = defaultdict(set)

    def declare(self, owner: Key, targets: frozenset[Key]) -> None:
        """Replace what an object depends on; an empty set forgets it."""
        for target in self._targets.pop(owner, frozenset()) - targets:
            self._dependents[target].discard(owner)
            if not self._dependents[target]:
                del self._dependents[target]
        for target in targets:
            self._dependents[target].add(owner)
        if targets:
            self._targets[owner] = targets

    def dependents(self, changed: Key) -> set[Key]:
        """Return the objects to wake when one changed; never the changed one itself."""
        everyone = Key(changed.plural, changed.namespace, ANY)
        found = self._dependents.get(changed, set()) | self._dependents.get(everyone, set())
        return found - {changed}
