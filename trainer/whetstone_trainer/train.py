"""Train: a LoRA adapter by one of TRL's trainers on prepared rows, resumed exactly from the newest checkpoint."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import PeftModel
from peft.utils import load_peft_weights, set_peft_model_state_dict
from transformers import TrainerState, set_seed
from whetstone_api.jobs import TrainingConfig
from whetstone_api.training_backend import Backend
from whetstone_api.training_evaluation import EarlyStoppingSpec
from whetstone_api.training_plan import ChosenPlan

from whetstone_trainer.arguments import common_arguments
from whetstone_trainer.base_model import load_model, lora_config
from whetstone_trainer.callbacks import ProgressCallback, StopCallback
from whetstone_trainer.checkpoint import CheckpointCallback, Checkpoints, seconds_of, step_of
from whetstone_trainer.compile_trial import CompileTrial
from whetstone_trainer.cpus import available_cpus
from whetstone_trainer.device import compile_layers, kernel_of, lean
from whetstone_trainer.distributed import Ranks
from whetstone_trainer.dpo import drop_reference, reward_metrics
from whetstone_trainer.errors import StoppedError
from whetstone_trainer.evaluation import evaluation_callbacks, evaluation_rows
from whetstone_trainer.init_adapter import folds, load_init_adapter
from whetstone_trainer.log_history import best_step, evaluated, is_exhausted
from whetstone_trainer.methods import trainer_of
from whetstone_trainer.plan import Plan
from whetstone_trainer.prepare import load_tokenizer
from whetstone_trainer.prepared import PREPARED_FOLDER, ROWS_FILE, PreparedReport
from whetstone_trainer.progress import Progress
from whetstone_trainer.recipe import Recipe, Settings
from whetstone_trainer.shards import sharded, sum_gradients
from whetstone_trainer.stacking import Updates, folded
from whetstone_trainer.stopping import StopSignal
from whetstone_trainer.unsloth_backend import load_unsloth

FINAL_STEPS = 10
"""Steps over which the reported training loss is averaged."""


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A trained model in memory.

    Args:
        model: PEFT model with the final adapter.
        rows: The prepared rows (columns `input_ids`, `labels`).
        metrics: Final figures as decimals.
        plan: How the device was used.
        step: Optimizer step whose weights these are.
        history: Transformers' log of all steps.
        below: Changes of the adapter that is folded into the base model; None where none is.
    """

    model: Any
    rows: Any
    metrics: dict[str, str]
    plan: ChosenPlan
    step: int
    history: list[dict[str, Any]]
    below: Updates | None = None


def train_adapter(
    config: TrainingConfig,
    recipe: Recipe,
    plan: Plan,
    *,
    prepared: PreparedReport,
    progress: Progress,
    stop: StopSignal,
    ranks: Ranks,
) -> Trained:
    """Train to the last step.

    Args:
        config: The job's configuration.
        recipe: What is asked.
        plan: How the device is used.
        prepared: Report of the prepared data in the workspace.
        progress: Where steps are reported.
        stop: SIGTERM.
        ranks: The processes that train together, met already.

    Raises:
        UserError: `INVALID_SPEC`, `CHECKPOINT_MISMATCH` or `TRAINING_DIVERGED`.
        StoppedError: SIGTERM came; a checkpoint is saved.
    """
    torch.set_num_threads(max(1, available_cpus() // ranks.place.local_size))
    settings, workspace = recipe.settings, Path(config.workspace_path)
    stopping = config.evaluation.early_stopping if config.evaluation else None
    checkpoints = _checkpoints(config, recipe, stopping, ranks)
    resume = checkpoints.newest()
    rows = Dataset.from_file(str(workspace / PREPARED_FOLDER / ROWS_FILE))
    set_seed(settings.seed)
    model, below = _base(config, settings, plan)
    kernel = kernel_of(model)
    model, shape = _with_adapter(config, settings, ranks, model)
    tokens_per_step = prepared.dataset.tokens / prepared.dataset.rows * settings.batch_size
    on_save = CheckpointCallback(checkpoints, seconds_before=seconds_of(resume) if resume else 0.0)
    trial = CompileTrial(plan, workspace, recipe_digest=recipe.digest, ranks=ranks)
    on_progress = ProgressCallback(progress, tokens_per_step=tokens_per_step)
    trainer = _trainer(
        config,
        ranks,
        model=model,
        arguments=common_arguments(config, settings, plan, output=checkpoints.incoming),
        train_dataset=rows,
        peft_config=shape,
        callbacks=[on_progress, trial, *evaluation_callbacks(config), on_save, StopCallback(stop, ranks)],
    )
    total = settings.max_steps or math.ceil(len(rows) / settings.batch_size) * (settings.epochs or 1)
    if resume is not None and (step_of(resume) >= total or is_exhausted(history_of(resume), stopping)):
        # Transformers trains on past the end when it resumes there; only the weights are needed.
        last, history, seconds = step_of(resume), history_of(resume), seconds_of(resume)
        take_weights(trainer.model, resume)
    else:
        if plan.compiled:
            compile_layers(trainer.model, workspace)
        with stop.deferred(), checkpoints.naming_a_full_disk(), lean(trainer.model, plan):
            trainer.train(resume_from_checkpoint=str(resume) if resume else None)
        last, history, seconds = trainer.state.global_step, trainer.state.log_history, on_save.train_seconds
        if last < total and not is_exhausted(history, stopping):
            raise StoppedError(f"stopped by SIGTERM after step {last} of {total}; a checkpoint is saved")
    best = best_step(history, stopping) or last
    if best != last:
        take_weights(trainer.model, checkpoints.at(best))
    drop_reference(trainer.model)
    metrics = final_metrics(history, step=best, train_seconds=seconds, tokens=last * tokens_per_step)
    return Trained(
        model=trainer.model,
        rows=rows,
        metrics=metrics,
        plan=trial.plan.chosen(kernel),
        step=best,
        history=list(history),
        below=below,
    )


def _checkpoints(
    config: TrainingConfig, recipe: Recipe, stopping: EarlyStoppingSpec | None, ranks: Ranks
) -> Checkpoints:
    return Checkpoints(
        Path(config.workspace_path),
        recipe_digest=recipe.digest,
        keep=config.checkpoint.keep,
        ranks=ranks,
        best_of=lambda place: best_step(history_of(place), stopping),
    )


def _base(config: TrainingConfig, settings: Settings, plan: Plan) -> tuple[Any, Updates | None]:
    """Return the model to train an adapter on, and the changes of an adapter that is folded into it."""
    if config.backend is Backend.UNSLOTH:
        return load_unsloth(config, settings, checkpointing=plan.checkpointing), None
    model = load_model(config, plan)
    if config.init_adapter_path and folds(config):
        found = folded(model, Path(config.init_adapter_path))
        # Loading the first adapter draws numbers; the new one begins alike, wherever it is made.
        set_seed(settings.seed)
        return found
    return model, None


def _with_adapter(config: TrainingConfig, settings: Settings, ranks: Ranks, model: Any) -> tuple[Any, Any]:
    """Return the model to train, and the shape of the adapter that it still lacks."""
    if config.init_adapter_path and not folds(config):
        model = load_init_adapter(model, config)
    shape = None if isinstance(model, PeftModel) else lora_config(config, settings, model)
    if ranks.shares_base(config.world):
        return sharded(model, shape, ranks.place, strategy=config.world.strategy), None
    return model, shape


def _trainer(config: TrainingConfig, ranks: Ranks, **parts: Any) -> Any:
    trainer = trainer_of(config)(eval_dataset=evaluation_rows(config), processing_class=load_tokenizer(config), **parts)
    if ranks.shares_base(config.world):
        sum_gradients(trainer, ranks.place)
    return trainer


def take_weights(model: Any, checkpoint: Path) -> None:
    """Give a model the adapter of a checkpoint."""
    set_peft_model_state_dict(model, load_peft_weights(str(checkpoint), device="cpu"))


def final_metrics(
    history: Sequence[Mapping[str, Any]], *, step: int, train_seconds: float, tokens: float
) -> dict[str, str]:
    """Return the final figures as decimals: trainLoss, trainSeconds, tokensPerSecond, and what was evaluated.

    Args:
        history: Log of all steps.
        step: The step that is published.
        train_seconds: Seconds in the training loop.
        tokens: Tokens trained on.
    """
    until = [entry for entry in history if entry["step"] <= step]
    losses = [float(entry["loss"]) for entry in until if "loss" in entry][-FINAL_STEPS:]
    return {
        "trainLoss": f"{sum(losses) / len(losses):.4f}",
        "trainSeconds": f"{train_seconds:.1f}",
        "tokensPerSecond": f"{tokens / max(train_seconds, 0.001):.1f}",
        **reward_metrics(until, steps=FINAL_STEPS),
        **{name: f"{value:.4f}" for name, value in evaluated(until, step).items()},
    }


def history_of(checkpoint: Path) -> list[dict[str, Any]]:
    """Return the log of all steps up to a checkpoint."""
    found: list[dict[str, Any]] = TrainerState.load_from_json(str(checkpoint / "trainer_state.json")).log_history
    return found
