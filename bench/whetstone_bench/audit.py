"""What a user has asked the API server for."""

import json
from collections import Counter
from pathlib import Path


class Audit:
    """Counts the requests of one user in the API server's audit log, by verb; those for Leases aside.

    Args:
        log: The log.
        user: Name of the user.
    """

    def __init__(self, log: Path, user: str) -> None:
        self._log, self._user, self._offset = log, user, 0
        self._counts: Counter[str] = Counter()
        self._taken: Counter[str] = Counter()

    def total(self) -> int:
        """Return how many there were so far."""
        with self._log.open("rb") as file:
            file.seek(self._offset)
            whole, end, _ = file.read().rpartition(b"\n")
        self._offset += len(whole) + len(end)
        for line in whole.splitlines():
            entry = json.loads(line)
            if entry["user"]["username"] == self._user and entry.get("objectRef", {}).get("resource") != "leases":
                self._counts[entry["verb"]] += 1
        return self._counts.total()

    def take(self) -> Counter[str]:
        """Return those since the last call."""
        self.total()
        found, self._taken = self._counts - self._taken, self._counts.copy()
        return found
