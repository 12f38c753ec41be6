"""Time as the API writes it, behind a type that tests can set."""

from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> datetime:
        """Return the time in UTC."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the time in UTC."""
        return datetime.now(UTC)


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
