"""Pushes of a training's results: what must be there before anything runs, and what the trainer reports of them."""

from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.reports import TerminationReport
from whetstone_api.source import scheme_of
from whetstone_api.training_push import PushResult
from whetstone_api.vocabulary import Reason
from whetstone_artifacts.sources.credentials import missing_key

from whetstone_operator.controllers.run_to_end import LOOK_AGAIN_SECONDS, read_result
from whetstone_operator.kinds import SECRET
from whetstone_operator.resources.pushes import push_folder
from whetstone_operator.runtime.outcome import Waiting
from whetstone_operator.runtime.reconcile import Work


async def require_push_secrets(work: Work[LoRATrainingJob]) -> None:
    """Check that the Secrets of all pushes exist, with a key that the place knows.

    Raises:
        Waiting: One does not, or lacks a key.
    """
    for position, push in enumerate(work.resource.spec.output.push or []):
        if push.secret_ref is None:
            continue
        name, field = push.secret_ref.name, f"spec.output.push[{position}].secretRef"
        secret = await work.context.kube.get(SECRET, work.namespace, name)
        if secret is None:
            problem = f"{field}: Secret {name} does not exist in namespace {work.namespace}; create it"
            raise Waiting(Reason.SECRET_NOT_FOUND, problem, LOOK_AGAIN_SECONDS)
        lacking = missing_key(scheme_of(push.uri), set(secret.get("data") or {}))
        if lacking is not None:
            problem = f"{field}: Secret {name} has no key {lacking}; add it"
            raise Waiting(Reason.SECRET_NOT_FOUND, problem, LOOK_AGAIN_SECONDS)


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
