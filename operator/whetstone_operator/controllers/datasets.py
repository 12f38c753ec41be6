"""Datasets of a training: what must be there before anything runs."""

from collections.abc import Mapping, Sequence
from typing import Any

from whetstone_api.benchmark_collect import CollectedRef, CollectKind
from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.source import FileSource, scheme_of
from whetstone_api.training_settings import Method
from whetstone_api.vocabulary import ConditionType, Reason

from whetstone_operator.controllers.references import find_run, require_config_map_key, require_secret
from whetstone_operator.runtime.outcome import Stalled, Waiting
from whetstone_operator.runtime.reconcile import Work


async def resolve_collected(work: Work[LoRATrainingJob]) -> dict[str, FileSource]:
    """Return where the rows lie that BenchmarkRuns collected, by the name of the dataset.

    Args:
        work: The job; woken when a run that it refers to changes.

    Raises:
        Waiting: A run does not exist, or has not ended.
        Stalled: It has failed, is not Valid, or did not collect such rows.
    """
    found = {}
    for position, dataset in enumerate(work.resource.spec.datasets):
        if dataset.benchmark_run_ref is not None:
            field = f"spec.datasets[{position}].benchmarkRunRef"
            found[dataset.name] = await _collected(work, dataset.benchmark_run_ref, field=field)
    return found


def configured_collected(datasets: Sequence[Mapping[str, Any]]) -> dict[str, FileSource]:
    """Return the same as it is configured already: the runs may be gone.

    Args:
        datasets: `datasets` of the stored configuration.
    """
    return {
        one["name"]: FileSource(uri=one["collectedUri"], digest=one.get("digest"))
        for one in datasets
        if one.get("collectedUri")
    }


async def _collected(work: Work[LoRATrainingJob], asked: CollectedRef, *, field: str) -> FileSource:
    run = await find_run(work, asked.name)
    if run is None:
        message = f"{field}.name: BenchmarkRun {asked.name} does not exist in namespace {work.namespace}; create it"
        raise Waiting(Reason.REFERENCE_NOT_FOUND, message)
    if run.status.is_true(ConditionType.FAILED):
        message = f"{field}.name: BenchmarkRun {asked.name} has failed; retry it, or name another run in a new object"
        raise Stalled(Reason.REFERENCE_FAILED, message)
    if not run.status.is_true(ConditionType.COMPLETE):
        raise Waiting(Reason.REFERENCE_NOT_READY, f"{field}.name: BenchmarkRun {asked.name} has not ended yet")
    if not run.status.is_true(ConditionType.VALID):
        message = f"{field}.name: BenchmarkRun {asked.name} is not Valid, so nothing is learned from its trials"
        raise Stalled(Reason.REFERENCE_FAILED, f"{message}; name another run in a new object")
    learns = CollectKind.SFT if work.resource.spec.method is Method.SFT else CollectKind.PREFERENCE
    kind = asked.kind or learns
    rows = run.status.collected.of(kind) if run.status.collected else None
    if rows is None:
        message = f"{field}: BenchmarkRun {asked.name} did not collect rows of kind {kind}"
        raise Stalled(Reason.REFERENCE_FAILED, f"{message}; name a run whose spec.collect asks for them")
    if not rows.rows:
        message = f"{field}: BenchmarkRun {asked.name} collected no row of kind {kind}: no trial was good enough"
        raise Stalled(Reason.DATASET_EMPTY, f"{message}; lower the bounds of spec.collect in a new run")
    return FileSource(uri=rows.uri, digest=rows.digest)


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


def dataset_claim_fields(job: LoRATrainingJob, collected: Mapping[str, FileSource]) -> dict[str, str]:
    """Return the claims that datasets lie in, by the field that names them."""
    rows = {
        f"spec.datasets[{position}].benchmarkRunRef ({source.uri})": place.claim
        for position, dataset in enumerate(job.spec.datasets)
        if (source := collected.get(dataset.name)) is not None and (place := source.in_claim) is not None
    }
    return rows | {
        f"spec.datasets[{position}].source.uri": place.claim
        for position, dataset in enumerate(job.spec.datasets)
        if dataset.source is not None and (place := dataset.source.in_claim) is not None
    }
