"""Jobs that wait in a queue of Kueue. Kueue alone starts and stops them: their `suspend` and pod template are its.

A Job with the queue's label is created suspended. Kueue makes a Workload for it, and starts the Job once a queue has
quota. It may stop the Job again at any time; the Job is then no failure, and its next pod goes on from the last
checkpoint. `spec.suspend` of our object reaches such a Job through `active` of its Workload, which is how Kueue wants
to be told: a Job that is suspended behind its back, it starts again at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from whetstone_api.benchmarkrun import BenchmarkRun
from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.vocabulary import Annotation, ConditionType, Label, Reason

from whetstone_operator.kinds import WORKLOAD
from whetstone_operator.kube import KubeError
from whetstone_operator.runtime.outcome import Waiting
from whetstone_operator.runtime.reconcile import Work

LOOK_AGAIN_SECONDS = 30.0
"""Pause before a Workload is looked at again: only the Job, which Kueue starts and stops, is watched."""
FIRST_LOOK_SECONDS = 2.0
CHANGED_SECONDS = 1.0
"""Pause before an object is looked at again that has changed under our hands."""


@dataclass(frozen=True)
class Standing:
    """How a Job stands in its queue: the condition `QuotaReserved`."""

    reserved: bool
    reason: Reason
    message: str


def queue_of(job: Mapping[str, Any]) -> str | None:
    """Return the queue that starts and stops a Job; None where that is left to us."""
    queue: str | None = (job["metadata"].get("labels") or {}).get(Label.QUEUE)
    return queue


def standing(job: Mapping[str, Any], workload: Mapping[str, Any] | None, *, before: str | None) -> Standing:
    """Return how an unfinished Job stands in its queue.

    Args:
        job: The Job.
        workload: Its Workload; None where there is none, or none that may be read.
        before: Reason of the condition so far, by which a Job that ran is told from one that has not.
    """
    name, queue = job["metadata"]["name"], queue_of(job)
    waits = bool(job["spec"].get("suspend"))
    if not waits:
        return Standing(True, Reason.ADMITTED, f"Job {name} is admitted by {_admitter(workload, queue)}")
    if workload is None:
        if before in (Reason.ADMITTED, Reason.PREEMPTED):
            return Standing(False, Reason.PREEMPTED, f"queue {queue} has stopped Job {name}; {_onward(job)}")
        advice = "Kueue must be installed, serve its API v1beta2 and manage this namespace"
        return Standing(False, Reason.QUEUED, f"Job {name} has no Workload in queue {queue} yet; {advice}")
    if workload["spec"].get("active") is False:
        said = _said(workload, "Evicted")
        advice = f"set spec.active of Workload {workload['metadata']['name']} to true to go on"
        return Standing(False, Reason.DEACTIVATED, f"Job {name} is stopped: {said}; {advice}")
    evicted = _condition(workload, "Evicted") or {}
    # One that is active again, yet not admitted, still says that it was deactivated.
    if evicted.get("status") == "True" and not str(evicted.get("reason")).startswith("Deactivated"):
        said = _said(workload, "Evicted")
        return Standing(False, Reason.PREEMPTED, f"queue {queue} has stopped Job {name}: {said}; {_onward(job)}")
    reserved = _condition(workload, "QuotaReserved")
    has_quota = reserved is not None and reserved["status"] == "True"
    said = _said(workload, "Admitted" if has_quota else "QuotaReserved")
    return Standing(has_quota, Reason.QUEUED, f"Job {name} waits in queue {queue}: {said}")


async def follow_in_queue[R: (LoRATrainingJob, BenchmarkRun)](work: Work[R], job: dict[str, Any]) -> None:
    """Hold a queued Job back, or let it go, as `spec.suspend` says.

    Where it has no Workload, Kueue is not there yet and nobody else decides: then the Job itself is suspended.
    """
    held = work.resource.spec.suspend
    try:
        workload = await _workload(work, job)
    except KubeError as error:
        if held or error.status != HTTPStatus.FORBIDDEN:
            raise
        return
    if workload is None:
        if held and not job["spec"].get("suspend"):
            await change_job(work, job, {"spec": {"suspend": True}})
        if held:
            work.look_again(LOOK_AGAIN_SECONDS)
    else:
        ours = Annotation.HELD in (workload["metadata"].get("annotations") or {})
        active = workload["spec"].get("active") is not False
        if (held and active) or (ours and not held):
            note = {Annotation.HELD: "true" if held else None}
            change = {"metadata": {"annotations": note}, "spec": {"active": not held}}
            if not await work.context.kube.merge(workload, change):
                work.look_again(CHANGED_SECONDS)
    if held:
        message = f"Job {job['metadata']['name']} leaves queue {queue_of(job)} while spec.suspend is true"
        work.conditions.set(ConditionType.QUOTA_RESERVED, False, reason=Reason.SUSPENDED, message=message)


async def change_job[R: (LoRATrainingJob, BenchmarkRun)](
    work: Work[R], job: dict[str, Any], change: dict[str, Any]
) -> None:
    """Change an existing Job; one that has changed meanwhile is looked at again."""
    if not await work.context.kube.merge({"apiVersion": "batch/v1", "kind": "Job", **job}, change):
        work.look_again(CHANGED_SECONDS)


async def require_admission[R: (LoRATrainingJob, BenchmarkRun)](work: Work[R], job: dict[str, Any]) -> None:
    """Say how an unfinished Job stands in its queue, if it has one.

    Raises:
        Waiting: It may not run yet, or not any more.
    """
    suspended = bool(job["spec"].get("suspend"))
    if queue_of(job) is None:
        work.conditions.remove(ConditionType.QUOTA_RESERVED)
        # One that carries our mark, and was not to be held, has just been let go.
        if suspended and Annotation.HELD not in (job["metadata"].get("annotations") or {}):
            message = (
                f"Job {job['metadata']['name']} is suspended, and not by spec.suspend; it waits for whoever did it"
            )
            raise Waiting(Reason.JOB_SUSPENDED, message)
        return
    try:
        workload = await _workload(work, job)
    except KubeError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        workload = None
    before = work.conditions.get(ConditionType.QUOTA_RESERVED)
    found = standing(job, workload, before=before["reason"] if before else None)
    work.conditions.set(ConditionType.QUOTA_RESERVED, found.reserved, reason=found.reason, message=found.message)
    if suspended:
        # Kueue needs a moment to make the Workload of a new Job, and to say why it waits.
        raise Waiting(found.reason, found.message, LOOK_AGAIN_SECONDS if before else FIRST_LOOK_SECONDS)


def _onward(job: Mapping[str, Any]) -> str:
    """Return what becomes of a Job that was stopped."""
    if Label.BENCHMARK_RUN in (job["metadata"].get("labels") or {}):
        return "it keeps its finished trials, and runs the others once it is admitted again"
    return "it goes on from its last checkpoint once it is admitted again"


async def _workload[R: (LoRATrainingJob, BenchmarkRun)](work: Work[R], job: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the Workload of a Job; None while there is none, or no Kueue."""
    labels = {str(Label.QUEUED_JOB): str(job["metadata"]["uid"])}
    try:
        found = await work.context.kube.list(WORKLOAD, work.namespace, labels)
    except KubeError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return None
        raise
    return next((one for one in found if not _is_over(one)), None)


def _is_over(workload: Mapping[str, Any]) -> bool:
    finished = _condition(workload, "Finished")
    return finished is not None and finished["status"] == "True"


def _condition(workload: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    for condition in workload.get("status", {}).get("conditions") or []:
        if condition["type"] == kind:
            found: Mapping[str, Any] = condition
            return found
    return None


def _said(workload: Mapping[str, Any], kind: str) -> str:
    """Return what a condition of a Workload says."""
    condition = _condition(workload, kind)
    return (condition or {}).get("message") or "it has not said why yet"


def _admitter(workload: Mapping[str, Any] | None, queue: str | None) -> str:
    admission = (workload or {}).get("status", {}).get("admission") or {}
    name = admission.get("clusterQueue")
    return f"ClusterQueue {name}" if name else f"queue {queue}"
