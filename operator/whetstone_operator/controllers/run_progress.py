"""Where a benchmark stands: its pods' report as `status.progress`, as series, and what is told while they work."""

from collections.abc import Mapping
from typing import Any

from whetstone_api.benchmark_oracle import ORACLE_PHASE
from whetstone_api.benchmark_result import RunProgress, RunResults
from whetstone_api.vocabulary import Annotation, Reason

from whetstone_operator.kinds import Key
from whetstone_operator.metrics import RUN_SECONDS_LEFT, RUN_TRIALS
from whetstone_operator.runtime.clock import to_rfc3339
from whetstone_operator.runtime.outcome import Waiting
from whetstone_operator.runtime.progress import Reported

STATES = ("passed", "failed", "void", "running", "waiting")


def progress_of(reported: Reported) -> RunProgress:
    """Return what the status says of the latest report."""
    report = reported.report
    return RunProgress(
        phase=report.phase[:32],
        fetched_bytes=report.fetched_bytes,
        total_bytes=report.total_bytes,
        finished=report.step,
        total=report.max_steps,
        passed=report.passed,
        failed=report.failed,
        void=report.void,
        running=report.running,
        eta_seconds=report.eta_seconds,
        updated_at=to_rfc3339(reported.at),
    )


def ended_progress(results: RunResults) -> RunProgress:
    """Return what the status says of a run that has its result: the last report may have been an earlier one."""
    return RunProgress(phase="Score", finished=results.trials, total=results.trials, void=results.void)


def told_waiting(waiting: Waiting, job: Mapping[str, Any]) -> Waiting:
    """Return the outcome of a run at work, with what its Job says of its concurrency."""
    note = (job["metadata"].get("annotations") or {}).get(Annotation.LOWERED)
    if note is None or waiting.reason != Reason.RUNNING:
        return waiting
    return Waiting(waiting.reason, f"{waiting.message}; {note}", waiting.after_seconds)


def report_trials(key: Key, reported: Reported | None) -> None:
    """Set the series of a run from the latest report; there are none before the first that counts trials
    of the agent."""
    if reported is None or reported.report.max_steps is None or reported.report.phase == ORACLE_PHASE:
        return
    report = reported.report
    counts = {
        "passed": report.passed or 0,
        "failed": report.failed or 0,
        "void": report.void or 0,
        "running": report.running or 0,
    }
    counts["waiting"] = max(0, (report.max_steps or 0) - sum(counts.values()))
    for state in STATES:
        RUN_TRIALS.labels(namespace=key.namespace, name=key.name, state=state).set(counts[state])
    if report.eta_seconds is not None:
        RUN_SECONDS_LEFT.labels(namespace=key.namespace, name=key.name).set(report.eta_seconds)


def forget_trials(key: Key) -> None:
    """Remove the series of a run that has ended or is gone."""
    RUN_TRIALS.remove_by_labels({"namespace": key.namespace, "name": key.name})
    RUN_SECONDS_LEFT.remove_by_labels({"namespace": key.namespace, "name": key.name})
