"""What may change while the Jobs of an object exist: deadline, queue, resources. None decides what comes out.

The deadline of a Job can be changed as it is, and so can the queue of one that is suspended. Anything else takes a new
Job: the old one is deleted once its pods are gone, which save what they have first, and the new one goes on from there.
"""

from collections.abc import Mapping
from typing import Any

from whetstone_api.benchmarkrun import BenchmarkRun
from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.schema import Resources
from whetstone_api.vocabulary import Annotation, Label, Reason

from whetstone_operator.controllers.job_outcome import is_finished
from whetstone_operator.controllers.queueing import CHANGED_SECONDS, change_job, queue_of
from whetstone_operator.kinds import JOB
from whetstone_operator.resources.distributed import gpus_of
from whetstone_operator.resources.job_pod import resources_digest
from whetstone_operator.resources.training import TRAIN, stage_resources
from whetstone_operator.runtime.outcome import Stalled, Waiting
from whetstone_operator.runtime.reconcile import Work


async def follow_changes[R: (LoRATrainingJob, BenchmarkRun)](work: Work[R], jobs: Mapping[str, dict[str, Any]]) -> None:
    """Bring the unfinished Jobs of an attempt in line with what of the spec may change.

    Args:
        work: The training or the run.
        jobs: Its Jobs, by stage.

    Raises:
        Waiting: A Job makes way for another one.
        Stalled: The new resources would train by another number of processes than the checkpoints are of.
    """
    spec = work.resource.spec
    for stage, job in jobs.items():
        if is_finished(job):
            continue
        name = job["metadata"]["name"]
        field = _outdated(work.resource, job, stage)
        if field == "spec.resources" and stage == TRAIN and isinstance(work.resource, LoRATrainingJob):
            _require_gpus(work.resource, job)
        if field is not None:
            await work.context.kube.delete(JOB, work.namespace, name, children_first=True)
            message = f"{field} has changed: Job {name} makes way for a new one, which goes on from what is saved"
            raise Waiting(Reason.PROGRESSING, message, CHANGED_SECONDS)
        change: dict[str, Any] = {}
        if job["spec"].get("activeDeadlineSeconds") != spec.active_deadline_seconds:
            change["spec"] = {"activeDeadlineSeconds": spec.active_deadline_seconds}
        if queue_of(job) != spec.queue_name:
            change["metadata"] = {"labels": {str(Label.QUEUE): spec.queue_name}}
        if change:
            await change_job(work, job, change)


def _outdated(owner: LoRATrainingJob | BenchmarkRun, job: Mapping[str, Any], stage: str) -> str | None:
    """Return the field for whose sake a Job must be another one; None where it need not."""
    made_with = (job["metadata"].get("annotations") or {}).get(Annotation.RESOURCES)
    wanted = owner.spec.resources
    if isinstance(owner, LoRATrainingJob):
        wanted = stage_resources(wanted, stage)
    if made_with not in (None, resources_digest(wanted)):
        return "spec.resources"
    before, queue = queue_of(job), owner.spec.queue_name
    if before == queue or (before and queue and job["spec"].get("suspend")):
        return None
    return "spec.queueName"


def _require_gpus(owner: LoRATrainingJob, job: Mapping[str, Any]) -> None:
    """Refuse another number of GPUs where it says how many processes train.

    Raises:
        Stalled: It is another one.
    """
    asked = owner.spec.distributed
    if asked is not None and asked.processes_per_node is not None:
        return
    limits = job["spec"]["template"]["spec"]["containers"][0].get("resources", {}).get("limits")
    before, now = (max(1, gpus_of(one)) for one in (Resources(limits=limits), owner.spec.resources))
    if before != now:
        raise Stalled(
            Reason.INVALID_SPEC,
            f"spec.resources.limits: the training has begun with {before} processes, one for each GPU, and its "
            f"checkpoints are of as many; {now} cannot go on from them: set {before} again, or create another object",
        )
