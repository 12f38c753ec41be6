"""What a Job and its pods say about how the work stands. Pure.

The outcome comes from the termination message of the newest pod that ended (`TerminationReport`); where several work
together, from the one that has the result, else from that of index 0, but wrong input that any of them has found
counts. A pod that ended without a message crashed, and holds the last lines of its log in its place.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError
from whetstone_api.reports import Outcome, TerminationReport
from whetstone_api.vocabulary import Reason

from whetstone_operator.resources.distributed import index_of
from whetstone_operator.resources.fetching import FETCH_CONTAINER
from whetstone_operator.resources.job_pod import CONTAINER

OUT_OF_MEMORY = "OOMKilled"
"""The kubelet's reason where the kernel killed a container for want of memory."""
LAST_WORDS = 600
"""Characters of a crashed pod's log that a condition's message shows."""
WAITING_PROBLEMS = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)


@dataclass(frozen=True)
class Running:
    """The Job is not done. `problem` says what keeps its pod from running, if anything does."""

    problem: str | None = None


@dataclass(frozen=True)
class Succeeded:
    """The Job ended with its result."""

    report: TerminationReport


@dataclass(frozen=True)
class Failed:
    """The Job ended without all that was asked of it; `result` is what its pod has done and reported all the same."""

    reason: Reason
    message: str
    result: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Lost:
    """The Job completed and no pod is left to say with what; its result lies in the output place."""


JobOutcome = Running | Succeeded | Failed | Lost


@dataclass(frozen=True)
class Ending:
    """How a pod's container ended."""

    finished_at: str
    exit_code: int
    report: TerminationReport | None
    words: str = field(repr=False)
    cause: str


def judge(job: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> JobOutcome:
    """Return how a Job stands.

    Args:
        job: The Job as the API server stores it.
        pods: Its pods.
    """
    ending = newest_ending(pods)
    complete = job_condition(job, "Complete")
    failed = job_condition(job, "Failed")
    if complete is not None:
        ending = _with_result(pods) or ending
        if ending is None or _only_parts(job, ending):
            return Lost()
        if ending.report is None or ending.report.outcome is not Outcome.SUCCEEDED:
            words = ending.words or "nothing"
            return Failed(Reason.POD_FAILED, f"the pod of Job {_name(job)} ended without a report; it said: {words}")
        return Succeeded(ending.report)
    if failed is not None:
        told = _wrong_input(pods) or ending
        failure = _failure(job, failed, told)
        return replace(failure, result=told.report.result) if told is not None and told.report is not None else failure
    return Running(pod_problem(pods))


def newest_ending(pods: Sequence[Mapping[str, Any]]) -> Ending | None:
    """Return how the pod ended that ended last, of several that work together that of index 0; None while none has."""
    # Times are whole seconds: of two pods that ended in the same one, the second is the one that succeeded.
    endings = _endings(pods, first=True)
    return max(endings, key=lambda ending: (ending.finished_at, ending.exit_code == 0), default=None)


def pod_problem(pods: Sequence[Mapping[str, Any]]) -> str | None:
    """Return what keeps a pod from running, in words: image, scheduling, configuration; None if nothing does."""
    for pod in pods:
        name = pod["metadata"]["name"]
        status = pod.get("status", {})
        for container in (*_statuses(pod, "initContainerStatuses"), *_statuses(pod, "containerStatuses")):
            waiting = container.get("state", {}).get("waiting", {})
            if waiting.get("reason") in WAITING_PROBLEMS:
                return f"pod {name} cannot start: {waiting['reason']}: {waiting.get('message', '')}".rstrip(": ")
        for condition in status.get("conditions", []):
            if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
                return f"pod {name} cannot be scheduled: {condition.get('message', '')}"
    return None


def ended_for_memory(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod's container has ended since the kernel killed it, or a process in it, for want of memory."""
    ending = _ending(pod)
    return ending is not None and ending.cause == OUT_OF_MEMORY and ending.exit_code != 0


def attempts(job: Mapping[str, Any]) -> int:
    """Return how many pods the Job has started."""
    status = job.get("status", {})
    return sum(int(status.get(key) or 0) for key in ("active", "failed", "succeeded"))


def job_condition(job: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    """Return the Job's condition of that type where it is true."""
    for condition in job.get("status", {}).get("conditions") or []:
        if condition["type"] == kind and condition["status"] == "True":
            found: Mapping[str, Any] = condition
            return found
    return None


def _endings(pods: Sequence[Mapping[str, Any]], *, first: bool) -> list[Ending]:
    counted = [pod for pod in pods if not first or index_of(pod) == 0]
    return [ending for pod in counted if (ending := _ending(pod)) is not None]


def _with_result(pods: Sequence[Mapping[str, Any]]) -> Ending | None:
    """Return how the pod ended that told a result; of several, the one that ended last."""
    told = [ending for ending in _endings(pods, first=False) if _result(ending)]
    return max(told, key=lambda ending: ending.finished_at, default=None)


def _only_parts(job: Mapping[str, Any], ending: Ending) -> bool:
    """Return whether the pod with the result is gone, and others that worked with it are left."""
    several = int(job["spec"].get("completions") or 1) > 1
    return several and _result(ending) == {}


def _result(ending: Ending) -> Mapping[str, Any] | None:
    """Return what a pod that succeeded has told; None for any other."""
    report = ending.report
    return report.result if report is not None and report.outcome is Outcome.SUCCEEDED else None


def _wrong_input(pods: Sequence[Mapping[str, Any]]) -> Ending | None:
    """Return how a pod ended that found the input to be wrong; None where none did."""
    for ending in _endings(pods, first=False):
        if ending.report is not None and ending.report.outcome is Outcome.FAILED:
            return ending
    return None


def is_finished(job: Mapping[str, Any]) -> bool:
    """Return whether a Job has ended, well or not."""
    return any(job_condition(job, kind) is not None for kind in ("Complete", "Failed"))


def _failure(job: Mapping[str, Any], condition: Mapping[str, Any], ending: Ending | None) -> Failed:
    if ending is not None and ending.report is not None and ending.report.outcome is Outcome.FAILED:
        return Failed(known_reason(ending.report.reason), ending.report.message)
    cause = condition.get("reason")
    if cause == "DeadlineExceeded":
        limit = job["spec"].get("activeDeadlineSeconds")
        return Failed(
            Reason.DEADLINE_EXCEEDED,
            f"Job {_name(job)} did not end within spec.activeDeadlineSeconds ({limit} s); raise it and ask for a retry",
        )
    words = f"; the last pod said: {_last_words(ending)}" if ending is not None else ""
    if cause == "BackoffLimitExceeded":
        count = attempts(job)
        return Failed(Reason.ATTEMPTS_EXHAUSTED, f"Job {_name(job)} failed {count} times and gave up{words}")
    message = condition.get("message") or "no message"
    return Failed(Reason.POD_FAILED, f"Job {_name(job)} failed ({cause}): {message}{words}")


def _last_words(ending: Ending) -> str:
    if ending.report is not None:
        return ending.report.message
    said = ending.words or "nothing"
    fix = "; give it more in spec.resources.limits.memory and ask for a retry" if ending.cause == OUT_OF_MEMORY else ""
    return f"{said} (exit code {ending.exit_code}, {ending.cause}){fix}"


def _ending(pod: Mapping[str, Any]) -> Ending | None:
    for container in (*_statuses(pod, "initContainerStatuses"), *_statuses(pod, "containerStatuses")):
        terminated = container.get("state", {}).get("terminated")
        if terminated is None or container["name"] not in (CONTAINER, FETCH_CONTAINER):
            continue
        if container["name"] == FETCH_CONTAINER and not terminated.get("exitCode"):
            # It ends before the Job's own container starts: it counts only where it failed.
            continue
        text = terminated.get("message") or ""
        return Ending(
            finished_at=terminated.get("finishedAt") or "",
            exit_code=int(terminated.get("exitCode", -1)),
            report=_report(text),
            words=text.strip()[-LAST_WORDS:],
            cause=terminated.get("reason") or "no reason given",
        )
    return None


def _statuses(pod: Mapping[str, Any], kind: str) -> Sequence[Mapping[str, Any]]:
    return pod.get("status", {}).get(kind) or []


def _report(text: str) -> TerminationReport | None:
    try:
        return TerminationReport.model_validate(json.loads(text))
    except (ValueError, ValidationError):
        return None


def known_reason(name: str) -> Reason:
    """Return the reason of that name; a pod of another version may use one that this operator does not know."""
    return Reason(name) if name in Reason else Reason.POD_FAILED


def _name(job: Mapping[str, Any]) -> str:
    return str(job["metadata"]["name"])
