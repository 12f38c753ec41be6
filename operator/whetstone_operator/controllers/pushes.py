"""Pushes of a training's results: what must be there before anything runs, and what the trainer reports of them."""

from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.reports import TerminationReport
from whetstone_api.source import scheme_of
from whetstone_api.training_push import PushResult

from whetstone_operator.controllers.references import require_secret
from whetstone_operator.controllers.run_to_end import read_result
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
