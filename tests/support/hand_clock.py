"""A clock that tests set: time passes, and dates jump without it."""

from datetime import datetime, timedelta


class HandClock:
    """A clock that stands still unless told.

    Args:
        at: The time that it shows first.
    """

    def __init__(self, at: datetime) -> None:
        self._at = at
        self._steady = 0.0

    def now(self) -> datetime:
        return self._at

    def steady(self) -> float:
        return self._steady

    def go(self, **parts: float) -> None:
        """Let time pass, given as for `timedelta`."""
        self._steady += timedelta(**parts).total_seconds()
        self._at += timedelta(**parts)

    def jump(self, **parts: float) -> None:
        """Show another time, before or after, though none has passed."""
        self._at += timedelta(**parts)
