"""Datasets of a training: what must be there before anything runs."""

from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.source import scheme_of

from whetstone_operator.controllers.references import require_config_map_key, require_secret
from whetstone_operator.runtime.reconcile import Work


async def require_datasets(work: Work[LoRATrainingJob]) -> None:
    """Check that ConfigMaps and Secrets of all datasets exist, with the keys that are needed.

    Raises:
        Waiting: One does not, or lacks a key.
    """
    for position, dataset in enumerate(work.resource.spec.datasets):
        field = f"spec.datasets[{position}]"
        reference, source = dataset.config_map_ref, dataset.source
        if reference is not None:
            await require_config_map_key(work, name=reference.name, key=reference.key, field=f"{field}.configMapRef")
        if source is not None and source.secret_ref is not None:
            await require_secret(
                work, source.secret_ref.name, scheme=scheme_of(source.uri), field=f"{field}.source.secretRef"
            )


def dataset_claim_fields(job: LoRATrainingJob) -> dict[str, str]:
    """Return the claims that datasets lie in, by the field that names them."""
    return {
        f"spec.datasets[{position}].source.uri": place.claim
        for position, dataset in enumerate(job.spec.datasets)
        if dataset.source is not None and (place := dataset.source.in_claim) is not None
    }
