"""A benchmark at work holds its server: nothing restarts, goes or is unloaded that its trials are measured on.

What holds is read from the Jobs: one that is at work, for a bounded time. There is nothing to release.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError
from whetstone_api.benchmark_target import MeasuredTarget
from whetstone_api.vocabulary import Annotation, ConditionType, Label, Reason

from whetstone_operator.controllers.job_outcome import is_finished
from whetstone_operator.runtime.clock import from_rfc3339, to_rfc3339
from whetstone_operator.runtime.conditions import Conditions
from whetstone_operator.runtime.outcome import Waiting
from whetstone_operator.runtime.unchanged import stamp

HOLD_SECONDS = 86400
"""How long a run holds its server at most, where it has no deadline of its own."""


class HeldBack(Waiting):
    """A change of a server waits for the end of a benchmark; the server itself goes on as it is."""


@dataclass(frozen=True)
class Hold:
    """A run that measures a server now, or is the next to do so."""

    run: str
    served_name: str | None
    """Version that it measures."""
    until: datetime
    shared: bool
    """Whether the run shares the server with others."""
    measures: bool
    """Whether it measures; one that its queue has let start may wait for its turn."""


def holds_of(jobs: Sequence[Mapping[str, Any]], *, now: datetime) -> list[Hold]:
    """Return what holds a server, by the runs' names.

    Args:
        jobs: Jobs with the label that names the server.
        now: The time; a hold that has lasted too long is none.
    """
    found = [hold for job in jobs if at_work(job) and (hold := _hold(job)).until > now]
    return sorted(found, key=lambda hold: hold.run)


def at_work(job: Mapping[str, Any]) -> bool:
    """Return whether a Job's pods may run: it has not ended, is not suspended, and is not going."""
    return not (is_finished(job) or job["spec"].get("suspend") or job["metadata"].get("deletionTimestamp"))


def measures(job: Mapping[str, Any]) -> bool:
    """Return whether a Job measures its server: it is at work, and it is its turn."""
    return at_work(job) and turn_of(job) in (None, (job.get("status") or {}).get("startTime"))


def turn_of(job: Mapping[str, Any]) -> str | None:
    """Return for which start of a Job it is its turn: empty for none yet, None where it asks for no turn."""
    return _annotations(job).get(Annotation.TURN)


def shares(job: Mapping[str, Any]) -> bool:
    """Return whether a Job shares its server with others that say so too."""
    return _annotations(job).get(Annotation.SHARED) == "true"


def unshared(jobs: Sequence[Mapping[str, Any]], *, shared: bool, now: datetime) -> list[Hold]:
    """Return what holds a server against a run, by the runs' names.

    Args:
        jobs: As for `holds_of`.
        shared: Whether the run shares the server.
        now: The time.
    """
    return [hold for hold in holds_of(jobs, now=now) if not (shared and hold.shared)]


def holds_back(stored: Mapping[str, Any] | None, wanted: Mapping[str, Any]) -> bool:
    """Return whether applying a child would change what is there; one that is not there is made."""
    if stored is None:
        return False
    return bool(
        _annotations(stored).get(Annotation.APPLIED) != stamp(wanted)["metadata"]["annotations"][Annotation.APPLIED]
    )


def tell_holds(conditions: Conditions, holds: Sequence[Hold], *, waiting: bool) -> None:
    """Set the condition Held of a server, or take it away.

    Args:
        conditions: The server's.
        holds: What holds it.
        waiting: Whether a change of the spec waits.
    """
    if not holds:
        conditions.remove(ConditionType.HELD)
        return
    runs = ", ".join(
        f"{hold.run} ({_told(hold)} {hold.served_name}, until {to_rfc3339(hold.until)} at most)" for hold in holds
    )
    then = "a change of the spec waits that restarts engines or changes their number" if waiting else "no change waits"
    message = f"held by BenchmarkRun {runs}: no engine is restarted or taken away, and no such version unloaded; {then}"
    conditions.set(ConditionType.HELD, True, reason=Reason.BENCHMARK_RUNNING, message=message)


def require_free(jobs: Sequence[Mapping[str, Any]], *, run: str, server: str, shared: bool, now: datetime) -> None:
    """Wait while another run measures the server, unless both share it.

    Raises:
        Waiting: One does.
    """
    others = [hold for hold in unshared(jobs, shared=shared, now=now) if hold.run != run]
    if others:
        names = ", ".join(hold.run for hold in others)
        raise Waiting(
            Reason.SERVER_HELD,
            f"spec.target.modelServerRef.name: ModelServer {server} is held by BenchmarkRun {names}, and two runs at a"
            " time would slow each other's trials down; it is waited for (or set spec.target.shared to true in both)",
            LOOK_AGAIN_SECONDS,
        )


LOOK_AGAIN_SECONDS = 10.0
"""Pause before a held server is looked at again: the Jobs of other runs wake only their own."""


def _hold(job: Mapping[str, Any]) -> Hold:
    metadata = job["metadata"]
    began = from_rfc3339((job.get("status") or {}).get("startTime") or metadata["creationTimestamp"])
    limit = int(job["spec"].get("activeDeadlineSeconds") or HOLD_SECONDS)
    try:
        served = MeasuredTarget.model_validate_json(_annotations(job).get(Annotation.MEASURED_TARGET) or "").served_name
    except ValidationError:
        served = None
    return Hold(
        run=metadata["labels"][Label.BENCHMARK_RUN],
        served_name=served,
        until=began + timedelta(seconds=limit),
        shared=shares(job),
        measures=measures(job),
    )


def _annotations(obj: Mapping[str, Any]) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def _told(hold: Hold) -> str:
    return "measures" if hold.measures else "waits to measure"
