"""What the Job needs that pushes a training's results: targets, claims, Secrets. Pure."""

from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.source import Scheme, Source, scheme_of
from whetstone_api.training_push import PushSpec, PushTarget
from whetstone_api.vocabulary import SECRETS_ROOT


def push_targets(job: LoRATrainingJob) -> list[PushTarget]:
    """Return the pushes of a job as its trainer reads them."""
    return [
        PushTarget(
            name=push.name,
            uri=push.uri,
            what=push.what,
            path=place.mount_path if (place := push_folder(push)) else None,
            secret_path=f"{SECRETS_ROOT}/{push.secret_ref.name}" if push.secret_ref else None,
        )
        for push in job.spec.output.push or []
    ]


def push_folder(push: PushSpec) -> Source | None:
    """Return the folder that a push goes to; None for one that leaves the cluster's claims."""
    return Source(uri=push.uri) if scheme_of(push.uri) is Scheme.PVC else None


def push_claims(job: LoRATrainingJob) -> dict[str, bool]:
    """Return the claims that pushes write to, as a Job's plan takes them."""
    places = [push_folder(push) for push in job.spec.output.push or []]
    return {place.claim: True for place in places if place is not None}


def push_secrets(job: LoRATrainingJob) -> tuple[str, ...]:
    """Return the names of the Secrets that pushes need."""
    return tuple(sorted({push.secret_ref.name for push in job.spec.output.push or [] if push.secret_ref}))
