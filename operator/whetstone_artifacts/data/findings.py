"""What a check of training data finds."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Rule(StrEnum):
    """What was checked."""

    FORMAT = "format"
    ROLES = "roles"
    TOOL_CALLS = "tool-calls"
    DUPLICATE = "duplicate"
    NEAR_DUPLICATE = "near-duplicate"
    LEAKAGE = "leakage"
    LENGTH = "length"
    AMOUNT = "amount"


class Level(StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    """A training would refuse the row, or learn what it must not."""
    WARNING = "warning"
    """The row can be used, and it is likely not meant so."""
    ADVICE = "advice"
    """About the data as a whole."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was found.

    Args:
        rule: What was checked.
        level: How bad it is.
        file: The file, as it was named.
        row: Line in the file, from 1; None where it is about the file.
        message: What is wrong, with the place inside the row, and the fix.
    """

    rule: Rule
    level: Level
    file: str
    row: int | None
    message: str

    def __str__(self) -> str:
        row = "" if self.row is None else f", row {self.row}"
        return f"{self.level}: {self.file}{row}: {self.message} [{self.rule}]"


@dataclass(frozen=True, kw_only=True)
class Spread:
    """How figures are spread.

    Args:
        median: Half of them are at most this.
        p95: 95 of 100 are at most this.
        longest: None is more.
        total: Their sum.
    """

    median: int
    p95: int
    longest: int
    total: int


def spread_of(values: Sequence[int]) -> Spread | None:
    """Return how figures are spread, by nearest rank; None without any."""
    if not values:
        return None
    ordered = sorted(values)
    at = [ordered[max(0, -(-len(ordered) * share // 100) - 1)] for share in (50, 95)]
    return Spread(median=at[0], p95=at[1], longest=ordered[-1], total=sum(ordered))
