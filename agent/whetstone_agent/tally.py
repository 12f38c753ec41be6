"""Where a run is: each shard keeps count in a file of its own, and tells the sum of all."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from pydantic import ValidationError
from whetstone_api.reports import ProgressReport
from whetstone_api.wire import WireModel
from whetstone_artifacts.replacing import replacing

TALLY_FILE: Final = "tally.json"
PASSING_REWARD: Final = 1.0
_RUNNING: Final = "running"


class Tally(WireModel):
    """Trials of a shard by how they stand."""

    total: int = 0
    passed: int = 0
    """Scored with a full reward."""
    failed: int = 0
    """Scored with less."""
    void: int = 0
    running: int = 0
    eta_seconds: int | None = None
    complete: bool = False
    """Every trial has ended, and no void one is run again."""

    @property
    def done(self) -> int:
        """Trials that ended."""
        return self.passed + self.failed + self.void


class Counter:
    """Counts the trials of one shard.

    Args:
        folder: The shard's job folder.
        total: Trials in all.
        clock: Seconds of a clock that never goes back.
    """

    def __init__(self, folder: Path, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._total = total
        self._clock = clock
        self._since = clock()
        self._states: dict[str, str] = {}
        self._before = 0

    def found(self, trial: str, reward: float | None) -> None:
        """Count a trial that ended in an earlier try."""
        self._states[trial] = _state(reward)
        self._before = self._done()

    def started(self, trial: str) -> None:
        """Count a trial as running."""
        self._states[trial] = _RUNNING

    def ended(self, trial: str, reward: float | None) -> None:
        """Count a trial as ended; None for a void one."""
        self._states[trial] = _state(reward)

    def stopped(self, trial: str) -> None:
        """Count a trial as not begun."""
        self._states.pop(trial, None)

    def tally(self, *, complete: bool = False) -> Tally:
        """Return the count."""
        states = list(self._states.values())
        return Tally(
            total=self._total,
            passed=states.count("passed"),
            failed=states.count("failed"),
            void=states.count("void"),
            running=states.count(_RUNNING),
            eta_seconds=self._eta(),
            complete=complete,
        )

    def write(self, *, complete: bool = False) -> None:
        """Leave the count for the other shards."""
        write_tally(self._folder, self.tally(complete=complete))

    def _done(self) -> int:
        return sum(state != _RUNNING for state in self._states.values())

    def _eta(self) -> int | None:
        """Return the seconds that are left at the pace of this try; None before its first trial has ended."""
        ended = self._done() - self._before
        if ended <= 0:
            return None
        return round((self._clock() - self._since) / ended * max(0, self._total - self._done()))


def write_tally(folder: Path, tally: Tally) -> None:
    """Leave a count in a shard's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / TALLY_FILE, durable=False) as temporary:
        temporary.write_text(tally.to_json())


def read_tally(folder: Path) -> Tally | None:
    """Return the count of a shard; None while it has none."""
    try:
        return Tally.model_validate_json((folder / TALLY_FILE).read_bytes())
    except (OSError, ValidationError):
        return None


def forget_tally(folder: Path) -> None:
    """Take a shard's word back that it is complete."""
    (folder / TALLY_FILE).unlink(missing_ok=True)


def progress_of(tallies: Sequence[Tally | None], *, total: int) -> ProgressReport:
    """Return what all shards together report.

    Args:
        tallies: One for each shard; None for one that has not begun.
        total: Trials of the whole run.
    """
    known = [tally for tally in tallies if tally is not None]
    return ProgressReport(
        phase="Trials",
        step=sum(tally.done for tally in known),
        max_steps=total,
        passed=sum(tally.passed for tally in known),
        failed=sum(tally.failed for tally in known),
        void=sum(tally.void for tally in known),
        running=sum(tally.running for tally in known),
        eta_seconds=max((tally.eta_seconds for tally in known if tally.eta_seconds is not None), default=None),
    )


def _state(reward: float | None) -> str:
    if reward is None:
        return "void"
    return "passed" if reward >= PASSING_REWARD else "failed"
