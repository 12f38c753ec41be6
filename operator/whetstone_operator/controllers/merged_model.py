"""A base model by reference: the merged model that a LoRATrainingJob publishes."""

from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.modelserver import ModelServer
from whetstone_api.source import PinnedSource
from whetstone_api.training_result import MergedModel
from whetstone_api.vocabulary import ConditionType, Reason

from whetstone_operator.controllers.references import find_training_job
from whetstone_operator.runtime.outcome import Stalled, Waiting
from whetstone_operator.runtime.reconcile import Work

FIELD = "spec.model.trainingJobRef.name"


async def resolve_merged_model(work: Work[ModelServer], server: ModelServer) -> ModelServer:
    """Return the server with the place of its merged model as its source; one with a source of its own is unchanged.

    A job that is deleted takes nothing away: what it published stays, and so does what `status.model` recorded.

    Args:
        work: The server; woken when the job changes.
        server: The server as far as it is resolved.

    Raises:
        Waiting: The job does not exist, or has not published yet.
        Stalled: The job has failed, or makes no merged model.
    """
    reference = server.spec.model.training_job_ref
    if reference is None:
        work.status.pop("model", None)
        return server
    job = await find_training_job(work, reference.name)
    merged = _recorded(work, reference.name) if job is None else _published(job)
    work.status["model"] = {"trainingJob": reference.name, "source": merged.uri, "digest": merged.digest}
    model = server.spec.model.model_copy(update={"source": PinnedSource(uri=merged.uri, digest=merged.digest)})
    return server.model_copy(update={"spec": server.spec.model_copy(update={"model": model})})


def _published(job: LoRATrainingJob) -> MergedModel:
    name = job.metadata.name
    if job.spec.output.merged is None:
        raise Stalled(
            Reason.INVALID_SPEC,
            f"{FIELD}: LoRATrainingJob {name} makes no merged model; name a job with spec.output.merged, or serve its"
            " adapter by spec.adapters",
        )
    if job.status.merged is not None:
        return job.status.merged
    if job.status.is_true(ConditionType.FAILED):
        raise Stalled(
            Reason.REFERENCE_FAILED,
            f"{FIELD}: LoRATrainingJob {name} has failed; retry it with the annotation"
            " whetstone.dev/retry-requested-at, or name another job",
        )
    raise Waiting(Reason.REFERENCE_NOT_READY, f"{FIELD}: LoRATrainingJob {name} has not published its merged model yet")


def _recorded(work: Work[ModelServer], name: str) -> MergedModel:
    recorded = work.status.get("model") or {}
    if recorded.get("trainingJob") == name:
        return MergedModel(uri=recorded["source"], digest=recorded["digest"], bytes=0)
    raise Waiting(
        Reason.REFERENCE_NOT_FOUND,
        f"{FIELD}: LoRATrainingJob {name} does not exist in namespace {work.namespace}; create it",
    )
