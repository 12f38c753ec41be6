"""The claim that a training has of its own: made before anything is mounted, deleted with the object."""

from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.vocabulary import Reason

from whetstone_operator.controllers.references import LOOK_AGAIN_SECONDS
from whetstone_operator.resources.metadata import owner_uids
from whetstone_operator.resources.training import COMPONENT
from whetstone_operator.resources.workspace import own_claim
from whetstone_operator.runtime.outcome import Stalled, Waiting
from whetstone_operator.runtime.reconcile import Work


async def require_workspace(work: Work[LoRATrainingJob]) -> None:
    """Make the claim of `spec.workspace.claimTemplate`.

    Raises:
        Waiting: A claim of that name is being deleted.
        Stalled: There is one that belongs to somebody else.
    """
    claim = own_claim(work.resource, component=COMPONENT)
    if claim is None:
        return
    stored = await work.context.kube.create(claim)
    if work.resource.metadata.uid in owner_uids(stored):
        return
    words = f"spec.workspace.claimTemplate: PersistentVolumeClaim {claim['metadata']['name']}"
    if stored["metadata"].get("deletionTimestamp"):
        raise Waiting(Reason.CLAIM_NOT_FOUND, f"{words} of another object is being deleted", LOOK_AGAIN_SECONDS)
    raise Stalled(
        Reason.INVALID_SPEC,
        f"{words} exists and is not of this job; create another object that names it in spec.workspace.claimName, "
        "or delete it",
    )
