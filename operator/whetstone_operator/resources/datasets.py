"""What the Jobs need that read a training's data: files, claims, Secrets. Pure."""

from collections.abc import Mapping
from pathlib import PurePosixPath

from whetstone_api.jobs import DatasetFile
from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.source import FileSource, Source
from whetstone_api.training_data import DatasetSpec
from whetstone_api.vocabulary import CONFIGMAPS_ROOT, SECRETS_ROOT

FETCHED_FOLDER = "datasets"
"""Folder in the workspace of the files that come from outside the cluster."""


Collected = Mapping[str, FileSource]
"""Where the rows lie that BenchmarkRuns collected, by the name of the dataset."""


def dataset_files(job: LoRATrainingJob, *, workspace: str, collected: Collected) -> list[DatasetFile]:
    """Return where each dataset lies in the container, how the user named it, and what is used of it.

    Args:
        job: The object.
        workspace: The object's folder in the workspace, as the container sees it.
        collected: The rows of BenchmarkRuns.
    """
    return [
        _dataset_file(one, f"spec.datasets[{n}]", workspace, collected.get(one.name))
        for n, one in enumerate(job.spec.datasets)
    ]


def dataset_claims(job: LoRATrainingJob, collected: Collected) -> list[Source]:
    """Return the files that lie in claims."""
    sources = [dataset.source for dataset in job.spec.datasets if dataset.source is not None]
    places = [source.in_claim for source in (*sources, *collected.values())]
    return [place for place in places if place is not None]


def dataset_secrets(job: LoRATrainingJob) -> tuple[str, ...]:
    """Return the names of the Secrets that the places of datasets ask for."""
    sources = [dataset.source for dataset in job.spec.datasets if dataset.source is not None]
    return tuple(sorted({source.secret_ref.name for source in sources if source.secret_ref is not None}))


def _dataset_file(dataset: DatasetSpec, where: str, workspace: str, rows: FileSource | None) -> DatasetFile:
    use = {"name": dataset.name, "weight": dataset.weight, "filter": dataset.filter}
    if dataset.config_map_ref is not None:
        reference = dataset.config_map_ref
        field = f"{where}.configMapRef (key {reference.key} of ConfigMap {reference.name})"
        return DatasetFile.model_validate(
            {**use, "path": f"{CONFIGMAPS_ROOT}/{reference.name}/{reference.key}", "field": field}
        )
    if rows is not None and rows.in_claim is not None:
        run = dataset.benchmark_run_ref.name if dataset.benchmark_run_ref else ""
        return DatasetFile.model_validate(
            {
                **use,
                "path": rows.in_claim.mount_path,
                "field": f"{where}.benchmarkRunRef (BenchmarkRun {run}, {rows.uri})",
                "digest": rows.digest,
                "collected_uri": rows.uri,
            }
        )
    source = dataset.source
    if source is None:
        raise ValueError(f"{where} has no source, no configMapRef and no resolved benchmarkRunRef")
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
