"""What the Jobs need that read a training's data: files, claims, Secrets. Pure."""

from pathlib import PurePosixPath

from whetstone_api.jobs import DatasetFile
from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.source import Source
from whetstone_api.training_data import DatasetSpec
from whetstone_api.vocabulary import CONFIGMAPS_ROOT, SECRETS_ROOT

FETCHED_FOLDER = "datasets"
"""Folder in the workspace of the files that come from outside the cluster."""


def dataset_files(job: LoRATrainingJob, *, workspace: str) -> list[DatasetFile]:
    """Return where each dataset lies in the container, how the user named it, and what is used of it.

    Args:
        job: The object.
        workspace: The object's folder in the workspace, as the container sees it.
    """
    return [_dataset_file(one, f"spec.datasets[{n}]", workspace) for n, one in enumerate(job.spec.datasets)]


def dataset_claims(job: LoRATrainingJob) -> list[Source]:
    """Return the files that lie in claims."""
    places = [dataset.source.in_claim for dataset in job.spec.datasets if dataset.source is not None]
    return [place for place in places if place is not None]


def dataset_secrets(job: LoRATrainingJob) -> tuple[str, ...]:
    """Return the names of the Secrets that the places of datasets ask for."""
    sources = [dataset.source for dataset in job.spec.datasets if dataset.source is not None]
    return tuple(sorted({source.secret_ref.name for source in sources if source.secret_ref is not None}))


def _dataset_file(dataset: DatasetSpec, where: str, workspace: str) -> DatasetFile:
    use = {"name": dataset.name, "weight": dataset.weight, "filter": dataset.filter}
    if dataset.config_map_ref is not None:
        reference = dataset.config_map_ref
        field = f"{where}.configMapRef (key {reference.key} of ConfigMap {reference.name})"
        return DatasetFile.model_validate(
            {**use, "path": f"{CONFIGMAPS_ROOT}/{reference.name}/{reference.key}", "field": field}
        )
    source = dataset.source
    if source is None:
        raise ValueError(f"{where} has neither source nor configMapRef")
    place = source.in_claim
    fetched = f"{workspace}/{FETCHED_FOLDER}/{dataset.name}{PurePosixPath(source.uri).suffix}"
    secret = f"{SECRETS_ROOT}/{source.secret_ref.name}" if source.secret_ref else None
    return DatasetFile.model_validate(
        {
            **use,
            "path": place.mount_path if place else fetched,
            "field": f"{where}.source.uri ({source.uri})",
            "uri": None if place else source.uri,
            "secret_path": secret,
            "digest": source.digest,
        }
    )
