"""What the kinds that end with a result share: retry, rest after the end, suspension, and following a Job."""

from collections.abc import Collection
from typing import Any

from pydantic import ValidationError
from whetstone_api.benchmarkrun import BenchmarkRun
from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.reports import TerminationReport
from whetstone_api.schema import ApiModel
from whetstone_api.vocabulary import Annotation, ConditionType, Reason

from whetstone_operator.controllers.job_outcome import Failed, Lost, Succeeded, is_finished, judge
from whetstone_operator.controllers.queueing import change_job, follow_in_queue, queue_of, require_admission
from whetstone_operator.kinds import JOB, POD
from whetstone_operator.resources.distributed import JOB_NAME_LABEL
from whetstone_operator.resources.metadata import selector_labels
from whetstone_operator.runtime.clock import to_micro_time
from whetstone_operator.runtime.outcome import Paused, Stalled, Waiting
from whetstone_operator.runtime.progress import Reported
from whetstone_operator.runtime.reconcile import Work

LOOK_AGAIN_SECONDS = 10.0
"""Pause before a Job that makes way for another one is looked at again, should a watch have lost its end."""
_RETRY_LENGTH = 256


def accept_retry[R: (LoRATrainingJob, BenchmarkRun)](work: Work[R], *, keeps: Collection[str] = ()) -> None:
    """Start over where the object has failed and its retry annotation has a value that was not answered yet.

    Args:
        work: The object.
        keeps: Fields of the status that stay: what they tell of is there whatever the next attempt does.
    """
    wanted = work.resource.metadata.annotations.get(Annotation.RETRY, "")[:_RETRY_LENGTH]
    if not wanted or wanted == work.status.get("handledRetry") or not work.conditions.is_true(ConditionType.FAILED):
        return
    kept = {name: work.status[name] for name in keeps if name in work.status}
    work.status.clear()
    work.status.update(kept, handledRetry=wanted)


def handled_retry[R: (LoRATrainingJob, BenchmarkRun)](work: Work[R]) -> str | None:
    """Return the retry request that the current attempt answers."""
    value: str | None = work.status.get("handledRetry")
    return value


def has_ended[R: (LoRATrainingJob, BenchmarkRun)](work: Work[R]) -> bool:
    """Return whether the object has its result or has failed for good."""
    return "finishedAt" in work.status


async def rest[R: (LoRATrainingJob, BenchmarkRun)](work: Work[R]) -> None:
    """Keep an ended object as it is. Its Jobs get their time to live only now, when nothing needs them any more."""
    work.context.board.forget(work.key)
    if work.conditions.is_true(ConditionType.FAILED):
        await _stop(work)
    await _limit_life(work)
    ready = work.conditions.get(ConditionType.READY)
    if ready is None:
        return
    if not work.conditions.is_true(ConditionType.COMPLETE):
        raise Stalled(ready["reason"], ready["message"])
    work.finish(Reason(ready["reason"]), ready["message"])


def conclude[R: (LoRATrainingJob, BenchmarkRun)](work: Work[R], *, reason: Reason, message: str) -> None:
    """End an object with its result."""
    work.status["finishedAt"] = to_micro_time(work.now)
    work.conditions.remove(ConditionType.QUOTA_RESERVED)
    work.context.board.forget(work.key)
    work.finish(reason, message)


class JobFailed(Stalled):
    """A Job failed, and so has its object.

    Args:
        failure: How, with what its pod has done all the same.
    """

    def __init__(self, failure: Failed) -> None:
        super().__init__(failure.reason, failure.message)
        self.result = failure.result


def fail[R: (LoRATrainingJob, BenchmarkRun)](work: Work[R], failure: Failed) -> JobFailed:
    """End an object without a result; the caller raises what this returns."""
    work.status["finishedAt"] = to_micro_time(work.now)
    work.conditions.remove(ConditionType.QUOTA_RESERVED)
    work.context.board.forget(work.key)
    return JobFailed(failure)


async def find_job[R: (LoRATrainingJob, BenchmarkRun)](work: Work[R], name: str) -> dict[str, Any] | None:
    """Return a Job of the object; None when it does not exist.

    Raises:
        Waiting: It is being deleted; it comes back once it is gone.
    """
    job = await work.context.kube.get(JOB, work.namespace, name)
    if job is not None and job["metadata"].get("deletionTimestamp"):
        raise Waiting(Reason.PROGRESSING, f"Job {name} is being deleted; it is created again", LOOK_AGAIN_SECONDS)
    return job


async def follow_suspension[R: (LoRATrainingJob, BenchmarkRun)](work: Work[R], jobs: list[dict[str, Any]]) -> None:
    """Hold unfinished Jobs back, or let them go, as `spec.suspend` says.

    Raises:
        Paused: The object is suspended.
    """
    wanted = work.resource.spec.suspend
    for job in jobs:
        if not is_finished(job):
            await follow_in_queue(work, job) if queue_of(job) else await _hold(work, job)
    if wanted:
        raise Paused(Reason.SUSPENDED, "spec.suspend is true; set it to false to go on")


async def finished_report[R: (LoRATrainingJob, BenchmarkRun)](
    work: Work[R], job: dict[str, Any], *, reason: Reason
) -> TerminationReport:
    """Return what a Job ended with.

    Args:
        work: The object that the Job works for.
        job: The Job.
        reason: Reason of the conditions while it is at work.

    Raises:
        Waiting: It is at work; or it completed and nothing is left to say with what. Then it is deleted, and the one
            created in its place finds the published result and reports it.
        JobFailed: It failed; the object has ended.
    """
    name = job["metadata"]["name"]
    work.status.setdefault("startedAt", job["metadata"]["creationTimestamp"])
    outcome = judge(job, await _pods(work, job))
    if isinstance(outcome, Succeeded):
        return outcome.report
    if isinstance(outcome, Failed):
        raise fail(work, outcome)
    if isinstance(outcome, Lost):
        await work.context.kube.delete(JOB, work.namespace, name)
        raise Waiting(
            Reason.PROGRESSING,
            f"Job {name} completed and its pod is gone; it runs again to report what it published",
            LOOK_AGAIN_SECONDS,
        )
    if outcome.problem is not None:
        raise Waiting(Reason.POD_FAILED, outcome.problem)
    await require_admission(work, job)
    raise Waiting(reason, f"Job {name} is at work")


async def _pods[R: (LoRATrainingJob, BenchmarkRun)](work: Work[R], job: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the pods of a Job; while it is at work, those that have not ended.

    The watches tell of these. How a Job ended is asked for: the watch of pods may be behind that of Jobs.
    """
    labels = {JOB_NAME_LABEL: job["metadata"]["name"]}
    if not is_finished(job):
        labels |= selector_labels(work.resource)
    return await work.context.kube.list(POD, work.namespace, labels)


def read_result[R: (LoRATrainingJob, BenchmarkRun), M: ApiModel](
    work: Work[R], model: type[M], value: Any, *, reporter: str
) -> M:
    """Return a part of a report's result, checked against its model.

    Args:
        work: The object; it ends without a result when the value does not fit.
        model: What the value should be.
        value: The value as the pod reported it.
        reporter: Who reported it, for the message.

    Raises:
        Stalled: The value does not fit: operator and pod are of different releases.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        message = f"the {reporter}'s report does not fit this operator ({model.__name__}.{where}: {first['msg']})"
        raise fail(work, Failed(Reason.INTERNAL_ERROR, f"{message}; use images of one release")) from error


def due_report[R: (LoRATrainingJob, BenchmarkRun)](work: Work[R]) -> Reported | None:
    """Return the pod's report to write into `status.progress` now; None when there is none, or it is too early."""
    progress = work.status.get("progress") or {}
    return work.context.board.due(work.key, phase=progress.get("phase"), updated_at=progress.get("updatedAt"))


async def _stop[R: (LoRATrainingJob, BenchmarkRun)](work: Work[R]) -> None:
    """Delete what still runs for an object that has failed: nobody waits for it."""
    for job in await work.context.kube.list(JOB, work.namespace, selector_labels(work.resource)):
        if not is_finished(job) and not job["metadata"].get("deletionTimestamp"):
            await work.context.kube.delete(JOB, work.namespace, job["metadata"]["name"])


async def _limit_life[R: (LoRATrainingJob, BenchmarkRun)](work: Work[R]) -> None:
    seconds = work.resource.spec.ttl_seconds_after_finished
    if seconds is None:
        return
    for job in await work.context.kube.list(JOB, work.namespace, selector_labels(work.resource)):
        if is_finished(job) and job["spec"].get("ttlSecondsAfterFinished") != seconds:
            await change_job(work, job, {"spec": {"ttlSecondsAfterFinished": seconds}})


async def _hold[R: (LoRATrainingJob, BenchmarkRun)](work: Work[R], job: dict[str, Any]) -> None:
    """Suspend a Job, or let one go that was suspended here; what somebody else suspends is theirs."""
    wanted, suspended = work.resource.spec.suspend, bool(job["spec"].get("suspend"))
    held = Annotation.HELD in (job["metadata"].get("annotations") or {})
    if wanted and not suspended:
        await change_job(work, job, {"metadata": {"annotations": {Annotation.HELD: "true"}}, "spec": {"suspend": True}})
    elif held and not wanted:
        await change_job(work, job, {"metadata": {"annotations": {Annotation.HELD: None}}, "spec": {"suspend": False}})
