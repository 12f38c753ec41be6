"""The three programs of a training, from configuration to termination report."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from whetstone_api.adapter_artifact import Lineage
from whetstone_api.jobs import TrainingConfig
from whetstone_api.reports import Outcome, TerminationReport
from whetstone_api.training_backend import Backend
from whetstone_api.training_plan import ChosenPlan
from whetstone_api.training_result import MergedModel, PublishedAdapter
from whetstone_api.vocabulary import Reason
from whetstone_artifacts.adoption import find_adapter, find_merged
from whetstone_artifacts.folders import beside
from whetstone_artifacts.lock import output_lock
from whetstone_artifacts.reporting import Reporter

from whetstone_trainer.cpus import memory_limit
from whetstone_trainer.data_fetch import fetch_datasets
from whetstone_trainer.distributed import Ranks, SilentReporter, find_place
from whetstone_trainer.errors import outcome_of
from whetstone_trainer.failpoints import failpoint
from whetstone_trainer.launch import launch, node_index
from whetstone_trainer.memory_estimate import expect
from whetstone_trainer.merge import merge_adapter, merged_model, publish_merged, read_adapter, require_mergeable
from whetstone_trainer.prepare import prepare_data
from whetstone_trainer.prepared import PreparedReport, read_report
from whetstone_trainer.progress import Progress
from whetstone_trainer.publish import publish_adapter, published, require_loadable, save_adapter, verify_saved
from whetstone_trainer.pushes import push_all
from whetstone_trainer.recipe import Recipe, read_recipe
from whetstone_trainer.room import naming_a_full_disk
from whetstone_trainer.stopping import StopSignal
from whetstone_trainer.strategy import expected, settled
from whetstone_trainer.unsloth_backend import import_unsloth

if TYPE_CHECKING:
    from whetstone_trainer.train import Trained


def run_prepare(config: TrainingConfig, progress: Progress, _stop: StopSignal) -> TerminationReport:
    """Validate the input and make the prepared data.

    Args:
        config: The job's configuration.
        progress: Where phases are reported.

    Raises:
        UserError, ArtifactError: The input is wrong.
    """
    from whetstone_trainer import without_torch  # noqa: F401 - this program ends without a training

    progress.phase("Validate")
    fetch_datasets(config)
    recipe = read_recipe(config)
    require_mergeable(config)
    if (adopted := _adopt(config, recipe, progress)) is not None:
        return adopted
    progress.phase("Prepare")
    report = prepare_data(config, recipe)
    asked, settings, limit = expected(config, recipe.settings, report.dataset), recipe.settings, memory_limit()
    # The pods that train have the same limit.
    limit = limit // config.world.processes_per_node if limit else None
    outlook = expect(asked, settings, report.dataset, limit=limit)
    return TerminationReport(
        outcome=Outcome.SUCCEEDED,
        reason=Reason.SUCCEEDED,
        message=f"{report.dataset.rows} rows with {report.dataset.tokens} tokens are prepared",
        result={
            "dataset": report.dataset.to_wire(),
            **({"estimate": outlook.estimate.to_wire()} if outlook else {}),
            **({"warnings": [outlook.warning]} if outlook and outlook.warning else {}),
        },
    )


def run_train(config: TrainingConfig, progress: Progress, stop: StopSignal) -> TerminationReport:
    """Train, verify and publish; prepared data that is missing is made first.

    Args:
        config: The job's configuration.
        progress: Where phases and steps are reported.
        stop: SIGTERM.

    Raises:
        UserError, ArtifactError: The input is wrong.
        StoppedError: SIGTERM came.
    """
    progress.phase("Validate")
    if config.backend is Backend.UNSLOTH:
        import_unsloth()
    fetch_datasets(config)
    recipe = read_recipe(config)
    place = Path(config.output_path)
    ranks = Ranks(find_place(config.world))
    first = ranks.place.is_first
    with output_lock(place) if first else nullcontext():
        if (adopted := _adopt(config, recipe, progress)) is not None:
            return adopted
        ranks.join(recipe.digest)
        if first:
            prepare_data(config, recipe)
        ranks.wait()
        prepared = read_report(Path(config.workspace_path))

        # Torch takes seconds to import, and neither adoption nor a refusal needs it.
        from whetstone_trainer.base_model import is_served
        from whetstone_trainer.device import find_device
        from whetstone_trainer.fitting import train_fitting
        from whetstone_trainer.probe import choose_sequences, record_probe

        progress.phase("Train")
        if first:
            progress.tracking.start(config, recipe.content)
        # Shares are for the memory of accelerators: on CPUs each process reads the whole base all the same.
        free = ranks.least(device.free if (device := find_device()).is_gpu else None)
        config = settled(config, recipe.settings, prepared.dataset, free=free)
        trained = train_fitting(config, recipe, prepared=prepared, progress=progress, stop=stop, ranks=ranks)
        if not first:
            # Where the model is not what servers have, rank 0 loads that for itself.
            if ranks.shares_base(config.world) and is_served(config):
                sequences = choose_sequences(trained.rows)
                record_probe(trained.model, sequences, base_fingerprint=recipe.base_fingerprint)
            return _ended_beside(ranks)
        adapter = _verify_and_publish(config, recipe, trained, prepared=prepared, progress=progress)
        ranks.wait()
        ranks.leave()
    return TerminationReport(
        outcome=Outcome.SUCCEEDED,
        reason=Reason.SUCCEEDED,
        message=f"the adapter is published at {config.output_uri}",
        result={
            "adapter": adapter.to_wire(),
            "metrics": trained.metrics,
            "plan": trained.plan.to_wire(),
            "adopted": False,
        },
    )


def _verify_and_publish(
    config: TrainingConfig, recipe: Recipe, trained: "Trained", *, prepared: PreparedReport, progress: Progress
) -> PublishedAdapter:
    """Record the effect of a trained adapter on the base as servers load it, and publish both in one step."""
    from whetstone_trainer.base_model import served_model
    from whetstone_trainer.probe import choose_sequences, record_probe
    from whetstone_trainer.stacking import stack

    progress.phase("Verify")
    place = Path(config.output_path)
    with _room_in_output("the adapter", place), beside(place) as folder:
        save_adapter(trained.model, folder, base=config.base_model_hub_id or config.base_model_source)
        verify_saved(folder, config)
        if trained.below is not None:
            stack(folder, trained.below, model=trained.model)
            require_loadable(folder, config)
        served = served_model(config, trained.model, folder)
        probe = record_probe(
            served, choose_sequences(trained.rows), base_fingerprint=recipe.base_fingerprint
        ).model_copy(update={"templates": prepared.templates})
        progress.phase("Publish")
        failpoint("before-publish", Path(config.workspace_path))
        adapter = publish_adapter(
            folder,
            config,
            recipe,
            prepared=prepared,
            probe=probe,
            metrics=trained.metrics,
            plan=trained.plan,
            step=trained.step,
            history=trained.history,
        )
        progress.published(adapter)
    return adapter


def launch_train(config: TrainingConfig, arguments: Sequence[str], *, token_path: str) -> TerminationReport:
    """Train by several processes, of which this one's pod has a share.

    An adapter that is published already is adopted before anybody is waited for: a pod that is started again after the
    publication finds no others.

    Args:
        config: The job's configuration.
        arguments: Arguments of `python -m whetstone_trainer` for each process.
        token_path: File with the token for reports.

    Raises:
        UserError, ArtifactError: The input is wrong.
        StoppedError: SIGTERM came.
    """
    is_first = node_index(config.world) == 0
    reporter = Reporter(url=config.report_url, token_path=token_path) if is_first else SilentReporter()
    try:
        fetch_datasets(config)
        adopted = _adopt(config, read_recipe(config), Progress(reporter))
    finally:
        reporter.close()
    return adopted or launch(config, arguments)


def run_merge(config: TrainingConfig, progress: Progress, _stop: StopSignal) -> TerminationReport:
    """Merge the published adapter into the base model, where asked for, and push what is published.

    Args:
        config: The job's configuration.
        progress: Where phases are reported.

    Raises:
        UserError, ArtifactError: Adapter or base model are not what they should be.
        NoRoomError: The merged model's volume is full.
    """
    result: dict[str, Any] = {"adopted": False}
    done: list[str] = []
    if config.merged_path is not None:
        progress.phase("Merge")
        merged, result["adopted"] = _merged(config, progress)
        result["merged"] = merged.to_wire()
        done.append(f"the merged model is published at {config.merged_uri}")
    if config.pushes:
        progress.phase("Push")
        pushes, failure = push_all(config)
        result["pushes"] = [push.to_wire() for push in pushes]
        if failure is not None:
            # What is merged and pushed is told all the same: it lies there.
            return TerminationReport(
                outcome=outcome_of(failure.reason), reason=failure.reason, message=failure.message, result=result
            )
        done.append("pushed to " + ", ".join(push.uri for push in pushes))
    return TerminationReport(
        outcome=Outcome.SUCCEEDED,
        reason=Reason.ADOPTED if result["adopted"] else Reason.SUCCEEDED,
        message="; ".join(done),
        result=result,
    )


def _merged(config: TrainingConfig, progress: Progress) -> tuple[MergedModel, bool]:
    """Return the published merged model, and whether it was there already."""
    require_mergeable(config)
    place = Path(config.merged_path or "")
    with _room_in_output("the merged model", place), output_lock(place):
        digest, lineage = read_adapter(config)
        held = find_merged(place, digest)
        if held is not None:
            return merged_model(config, held), True
        with beside(place) as folder:
            merge_adapter(config, folder)
            progress.phase("Publish")
            failpoint("before-publish-merged", Path(config.workspace_path))
            return publish_merged(folder, config, adapter_digest=digest, lineage=lineage), False


def _room_in_output(what: str, place: Path) -> AbstractContextManager[None]:
    fix = "make room in the claim of spec.output: the next attempt publishes what is trained, and trains nothing again"
    return naming_a_full_disk(what, place.parent, fix)


def _ended_beside(ranks: Ranks) -> TerminationReport:
    """Stay until rank 0 has published: were this process gone, nothing could be trained again if rank 0 is killed."""
    ranks.wait()
    ranks.leave()
    rank, size = ranks.place.rank, ranks.place.size
    return TerminationReport(
        outcome=Outcome.SUCCEEDED, reason=Reason.SUCCEEDED, message=f"rank {rank} of {size} ended; rank 0 reports"
    )


def _adopt(config: TrainingConfig, recipe: Recipe, progress: Progress) -> TerminationReport | None:
    lineage = find_adapter(Path(config.output_path), recipe.digest, recipe=recipe.content)
    if lineage is None:
        return None
    adapter = published(config, lineage)
    progress.published(adapter)
    result = {"adapter": adapter.to_wire(), "metrics": lineage.metrics, "adopted": True}
    return TerminationReport(
        outcome=Outcome.SUCCEEDED,
        reason=Reason.ADOPTED,
        message=f"{config.output_uri} already holds the adapter of this recipe",
        result=result | _recorded_plan(lineage),
    )


def _recorded_plan(lineage: Lineage) -> dict[str, Any]:
    """Return the plan as a result has it; nothing where another release wrote it in another form."""
    try:
        return {"plan": ChosenPlan.model_validate(lineage.plan).to_wire()}
    except ValidationError:
        return {}
