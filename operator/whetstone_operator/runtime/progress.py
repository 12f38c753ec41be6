"""The latest report of each object's pods. Only in memory: the outcome is in the termination message."""

from dataclasses import dataclass
from datetime import datetime

from whetstone_api.reports import ProgressReport

from whetstone_operator.kinds import Key
from whetstone_operator.runtime.clock import Clock, from_rfc3339

WRITE_EVERY_SECONDS = 30.0
"""Progress is written into a status at most this often."""
CHANGED = "Changed"
"""Phase with which a sidecar says that its pod's state changed."""


@dataclass(frozen=True)
class Reported:
    """A report and when it came."""

    report: ProgressReport
    at: datetime


def _is_news(report: ProgressReport, before: ProgressReport) -> bool:
    told = (report.adapter, before.adapter), (report.plan, before.plan)
    return report.phase != before.phase or any(now not in (None, earlier) for now, earlier in told)


class ProgressBoard:
    """Holds one report an object.

    Args:
        clock: Tells when a report came.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = clock.steady()
        self._reports: dict[Key, Reported] = {}
        self._looks: dict[Key, float] = {}
        self._heard: dict[Key, float] = {}

    def begin(self) -> None:
        """Count silence from here on: this operator was not told before."""
        self._since = self._clock.steady()

    def put(self, key: Key, report: ProgressReport) -> float:
        """Keep a report; return in how many seconds the object should be reconciled because of it."""
        now = self._heard[key] = self._clock.steady()
        before = self._reports.get(key)
        self._reports[key] = Reported(report=report, at=self._clock.now())
        look = self._looks.get(key)
        if report.phase == CHANGED or before is None or look is None or _is_news(report, before.report):
            look = now
        elif look <= now:
            look = max(now, look + WRITE_EVERY_SECONDS)
        self._looks[key] = look
        return look - now

    def excuse(self, key: Key) -> None:
        """Count an object's silence from now on: nobody is there to report."""
        self._heard[key] = self._clock.steady()

    def silence(self, key: Key) -> float:
        """Return for how many seconds nothing was heard of an object that could have been."""
        return self._clock.steady() - max(self._since, self._heard.get(key, self._since))

    def get(self, key: Key) -> Reported | None:
        """Return the latest report of an object."""
        return self._reports.get(key)

    def due(self, key: Key, *, phase: str | None, updated_at: str | None) -> Reported | None:
        """Return the report to write into the status now, or None.

        Args:
            key: The object.
            phase: `status.progress.phase` as stored.
            updated_at: `status.progress.updatedAt` as stored; progress of the same phase is rewritten at most
                every `WRITE_EVERY_SECONDS`, unless it was written by a clock that has been set back.
        """
        latest = self._reports.get(key)
        if latest is None or phase is None or updated_at is None or latest.report.phase != phase:
            return latest
        age = (self._clock.now() - from_rfc3339(updated_at)).total_seconds()
        return None if 0 <= age < WRITE_EVERY_SECONDS - 1 else latest

    def forget(self, key: Key) -> None:
        """Drop what is known of an object that is gone or has ended."""
        self._reports.pop(key, None)
        self._looks.pop(key, None)
        self._heard.pop(key, None)
