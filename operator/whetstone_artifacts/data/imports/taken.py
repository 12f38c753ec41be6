"""What an import yields: rows, and what it had to leave out."""

from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """Something that became no row.

    Args:
        place: What it is: a line of a file, a job, a commit's file.
        problem: Why.
    """

    place: str
    problem: str

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}"
