"""Pushes of a training's results: what must be there before anything runs, and what the trainer reports of them."""

from pydantic import TypeAdapter, ValidationError
from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.reports import TerminationReport
from whetstone_api.source import scheme_of
from whetstone_api.training_push import PushResult
from whetstone_api.training_result import MergedModel
from whetstone_api.vocabulary import Reason

from whetstone_operator.controllers.references import require_secret
from whetstone_operator.controllers.run_to_end import JobFailed, read_result
from whetstone_operator.resources.pushes import push_folder
from whetstone_operator.runtime.reconcile import Work


async def require_push_secrets(work: Work[LoRATrainingJob]) -> None:
    """Check that the Secrets of all pushes exist, with a key that the place knows.

    Raises:
        Waiting: One does not, or lacks a key.
    """
    for position, push in enumerate(work.resource.spec.output.push or []):
        if push.secret_ref is None:
            continue
        field = f"spec.output.push[{position}].secretRef"
        await require_secret(work, push.secret_ref.name, scheme=scheme_of(push.uri), field=field)


def push_claim_fields(job: LoRATrainingJob) -> dict[str, str]:
    """Return the claims that pushes write to, by the field that names them."""
    return {
        f"spec.output.push[{position}].uri": place.claim
        for position, push in enumerate(job.spec.output.push or [])
        if (place := push_folder(push)) is not None
    }


def take_pushes(work: Work[LoRATrainingJob], report: TerminationReport) -> None:
    """Write what lies at the places into the status.

    Raises:
        Stalled: The report does not fit: operator and pod are of different releases.
    """
    if not work.resource.spec.output.push:
        return
    reported = report.result.get("pushes") or [None]
    work.status["pushes"] = [read_result(work, PushResult, one, reporter="trainer").to_wire() for one in reported]


def keep_what_is_done(work: Work[LoRATrainingJob], failed: JobFailed) -> None:
    """Write into the status what a Job has published and pushed before it failed.

    What does not fit this operator is left out: the failure is what the user must hear of. What an earlier attempt had
    published stays, unless something else lies there.
    """
    result = failed.result
    if failed.reason == Reason.OUTPUT_OCCUPIED and "merged" not in result:
        work.status.pop("merged", None)
    try:
        if "merged" in result:
            work.status["merged"] = MergedModel.model_validate(result["merged"]).to_wire()
        if pushes := TypeAdapter(list[PushResult]).validate_python(result.get("pushes") or []):
            work.status["pushes"] = [push.to_wire() for push in pushes]
    except ValidationError:
        return
