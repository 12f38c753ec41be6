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
        self.since = clock.now()
        """When this operator began to hear reports."""
        self._reports: dict[Key, Reported] = {}
        self._woken: dict[Key, datetime] = {}

    def put(self, key: Key, report: ProgressReport) -> float:
        """Keep a report; return in how many seconds the object should be reconciled because of it."""
        now = self._clock.now()
        before = self._reports.get(key)
        self._reports[key] = Reported(report=report, at=now)
        if report.phase == CHANGED or before is None or _is_news(report, before.report):
            self._woken[key] = now
            return 0.0
        due = WRITE_EVERY_SECONDS - (now - self._woken.get(key, now)).total_seconds()
        if due <= 0:
            self._woken[key] = now
        return max(0.0, due)

    def get(self, key: Key) -> Reported | None:
        """Return the latest report of an object."""
        return self._reports.get(key)

    def due(self, key: Key, *, phase: str | None, updated_at: str | None) -> Reported | None:
        """Return the report to write into the status now, or None.

        Args:
            key: The object.
            phase: `status.progress.phase` as stored.
            updated_at: `status.progress.updatedAt` as stored; progress of the same phase is rewritten at most
                every `WRITE_EVERY_SECONDS`.
        """
        latest = self._reports.get(key)
        if latest is None or phase is None or updated_at is None or latest.report.phase != phase:
            return latest
        age = (latest.at - from_rfc3339(updated_at)).total_seconds()
        return latest if age >= WRITE_EVERY_SECONDS - 1 else None

    def forget(self, key: Key) -> None:
        """Drop what is known of an object that is gone or has ended."""
        self._reports.pop(key, None)
        self._woken.pop(key, None)
