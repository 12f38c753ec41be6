"""The claim in which a training keeps its prepared data and its checkpoints. Pure."""

from typing import Any

from whetstone_api.loratrainingjob import LoRATrainingJob

from whetstone_operator.resources.metadata import child_metadata


def workspace_claim(job: LoRATrainingJob) -> str:
    """Return the name of the claim."""
    return job.spec.workspace.claim_name or f"{job.metadata.name}-workspace"


def own_claim(job: LoRATrainingJob, *, component: str) -> dict[str, Any] | None:
    """Return the claim that is made for the job; None where the user has made one.

    Args:
        job: The object.
        component: Part of the product, for the label.
    """
    asked = job.spec.workspace.claim_template
    if asked is None:
        return None
    spec: dict[str, Any] = {
        "accessModes": [str(mode) for mode in asked.access_modes],
        "resources": {"requests": {"storage": asked.size}},
    }
    if asked.storage_class_name is not None:
        spec["storageClassName"] = asked.storage_class_name
    metadata = child_metadata(job, name=workspace_claim(job), component=component)
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
