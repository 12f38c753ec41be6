"""Fetching of datasets from outside the cluster into the workspace, once an object."""

from pathlib import Path

from whetstone_api.jobs import DatasetFile, TrainingConfig
from whetstone_api.source import scheme_of
from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.lock import output_lock
from whetstone_artifacts.sources.credentials import read_credentials
from whetstone_artifacts.sources.fetch import LOCK_SECONDS, fetch_file, open_file

from whetstone_trainer.hub import reaching


def fetch_datasets(config: TrainingConfig) -> None:
    """Fetch the datasets that are not there yet; one that is there stays, whatever its place holds by now.

    Args:
        config: The job's configuration.

    Raises:
        ArtifactError: As `fetch_file`, with the field.
    """
    for dataset in config.datasets:
        if dataset.uri is None or Path(dataset.path).is_file():
            continue
        try:
            _fetch(dataset, dataset.uri, Path(dataset.path))
        except ArtifactError as error:
            raise ArtifactError(error.reason, f"{dataset.field}: {error.message}") from error


def _fetch(dataset: DatasetFile, uri: str, target: Path) -> None:
    scheme = scheme_of(uri)
    credentials = read_credentials(scheme, Path(dataset.secret_path) if dataset.secret_path else None)
    target.parent.mkdir(parents=True, exist_ok=True)
    with output_lock(target, wait_seconds=LOCK_SECONDS):
        if target.is_file():
            return
        with reaching(scheme):
            fetch_file(open_file(uri, credentials), target, dataset.digest)
