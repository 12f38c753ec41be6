"""The published adapters that a training goes on from, or is compared with."""

from whetstone_api.loratrainingjob import InitAdapterSpec, LoRATrainingJob
from whetstone_api.source import Source
from whetstone_api.training_preference import ReferenceAdapterSpec
from whetstone_api.vocabulary import ConditionType, Reason

from whetstone_operator.controllers.references import find_training_job
from whetstone_operator.runtime.outcome import Stalled, Waiting
from whetstone_operator.runtime.reconcile import Work


async def resolve_init_adapter(work: Work[LoRATrainingJob]) -> Source | None:
    """Return the folder of the adapter that `spec.initAdapter` names; None without one.

    Args:
        work: The job; woken when the job that it refers to changes.

    Raises:
        Waiting: The other job does not exist, or has not ended.
        Stalled: It has failed, or is this very job.
    """
    return await _resolve(work, work.resource.spec.init_adapter, field="spec.initAdapter")


async def resolve_reference_adapter(work: Work[LoRATrainingJob]) -> Source | None:
    """Return the folder of the adapter that `spec.preference.reference` names; None without one.

    Arguments and errors are those of `resolve_init_adapter`.
    """
    preference = work.resource.spec.preference
    reference = preference.reference if preference else None
    return await _resolve(work, reference.adapter if reference else None, field="spec.preference.reference.adapter")


async def _resolve(
    work: Work[LoRATrainingJob], asked: InitAdapterSpec | ReferenceAdapterSpec | None, *, field: str
) -> Source | None:
    if asked is None or asked.source is not None:
        return asked.source if asked else None
    field = f"{field}.trainingJobRef.name"
    name = asked.training_job_ref.name if asked.training_job_ref else ""
    if name == work.name:
        raise Stalled(Reason.INVALID_SPEC, f"{field}: a job cannot start from its own adapter; name another job")
    job = await find_training_job(work, name)
    if job is None:
        message = f"{field}: LoRATrainingJob {name} does not exist in namespace {work.namespace}; create it"
        raise Waiting(Reason.REFERENCE_NOT_FOUND, message)
    if job.status.is_true(ConditionType.FAILED):
        message = f"{field}: LoRATrainingJob {name} has failed; retry it, or name another job in a new object"
        raise Stalled(Reason.REFERENCE_FAILED, message)
    if not job.status.is_true(ConditionType.COMPLETE) or job.status.adapter is None:
        raise Waiting(Reason.REFERENCE_NOT_READY, f"{field}: LoRATrainingJob {name} has not published its adapter yet")
    return Source(uri=job.status.adapter.uri)
