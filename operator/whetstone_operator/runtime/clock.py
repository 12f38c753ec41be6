"""Time as the API writes it, and time to wait by, behind a type that tests can set.

A machine's clock may be an hour off, and may jump. What waits, or tells how long something has lasted in this process,
goes by steady time. Dates are the API server's, so that those of the operator fit those of all other objects.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, Protocol

TOLERATED_SECONDS: Final = 10.0
"""Differences of clocks that nothing depends on; an answer may be read late, and its date has whole seconds."""


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> datetime:
        """Return the time in UTC."""

    def steady(self) -> float:
        """Return seconds that only ever pass; to be compared with others of this process alone."""


class ClusterClock:
    """The API server's clock, carried on by this process's steady one; until it has answered, this machine's.

    Args:
        wall: Seconds of this machine's clock since 1970.
        steady: Seconds of its steady clock.
    """

    def __init__(self, *, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic) -> None:
        self._steady = steady
        self._offset = wall() - steady()

    def now(self) -> datetime:
        """Return the time in UTC."""
        return datetime.fromtimestamp(self._steady() + self._offset, UTC)

    def steady(self) -> float:
        """Return seconds that only ever pass."""
        return self._steady()

    def hear(self, date: str | None) -> None:
        """Take over the header `Date` of an answer of the API server."""
        try:
            told = parsedate_to_datetime(date or "").timestamp()
        except ValueError:
            return
        offset = told - self._steady()
        if abs(offset - self._offset) > TOLERATED_SECONDS:
            self._offset = offset


def to_rfc3339(moment: datetime) -> str:
    """Return a `metav1.Time`: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def to_micro_time(moment: datetime) -> str:
    """Return a `metav1.MicroTime`: UTC, microseconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def from_rfc3339(text: str) -> datetime:
    """Read either form.

    Raises:
        ValueError: The text is no such time.
    """
    return datetime.fromisoformat(text)
