"""The published adapter that a training goes on from."""

from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.source import Source
from whetstone_api.vocabulary import ConditionType, Reason

from whetstone_operator.controllers.references import find_training_job
from whetstone_operator.runtime.outcome import Stalled, Waiting
from whetstone_operator.runtime.reconcile import Work

FIELD = "spec.initAdapter.trainingJobRef.name"


async def resolve_init_adapter(work: Work[LoRATrainingJob]) -> Source | None:
    """Return the folder of the adapter that `spec.initAdapter` names; None without one.

    Args:
        work: The job; woken when the job that it refers to changes.

    Raises:
        Waiting: The other job does not exist, or has not ended.
        Stalled: It has failed, or is this very job.
    """
    init = work.resource.spec.init_adapter
    if init is None or init.source is not None:
        return init.source if init else None
    name = init.training_job_ref.name if init.training_job_ref else ""
    if name == work.name:
        raise Stalled(Reason.INVALID_SPEC, f"{FIELD}: a job cannot go on from its own adapter; name another job")
    job = await find_training_job(work, name)
    if job is None:
        message = f"{FIELD}: LoRATrainingJob {name} does not exist in namespace {work.namespace}; create it"
        raise Waiting(Reason.REFERENCE_NOT_FOUND, message)
    if job.status.is_true(ConditionType.FAILED):
        message = f"{FIELD}: LoRATrainingJob {name} has failed; retry it, or name another job in a new object"
        raise Stalled(Reason.REFERENCE_FAILED, message)
    if not job.status.is_true(ConditionType.COMPLETE) or job.status.adapter is None:
        raise Waiting(Reason.REFERENCE_NOT_READY, f"{FIELD}: LoRATrainingJob {name} has not published its adapter yet")
    return Source(uri=job.status.adapter.uri)
