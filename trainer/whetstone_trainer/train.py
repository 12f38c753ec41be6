"""Train: a LoRA adapter by one of TRL's trainers on prepared rows, resumed exactly from the newest checkpoint."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import PeftModel
from peft.utils import load_peft_weights, set_peft_model_state_dict
from transformers import set_seed
from whetstone_api.jobs import TrainingConfig
from whetstone_api.training_backend import Backend
from whetstone_api.training_plan import ChosenPlan

from whetstone_trainer.arguments import common_arguments
from whetstone_trainer.base_model import load_model, lora_config
from whetstone_trainer.callbacks import ProgressCallback, StopCallback
from whetstone_trainer.checkpoint import CheckpointCallback, Checkpoints, seconds_of, step_of
from whetstone_trainer.cpus import available_cpus
from whetstone_trainer.device import compile_layers, kernel_of
from whetstone_trainer.distributed import Ranks
from whetstone_trainer.dpo import drop_reference, reward_metrics
from whetstone_trainer.errors import StoppedError
from whetstone_trainer.init_adapter import load_init_adapter
from whetstone_trainer.methods import trainer_of
from whetstone_trainer.plan import Plan
from whetstone_trainer.prepare import load_tokenizer
from whetstone_trainer.prepared import PREPARED_FOLDER, ROWS_FILE, PreparedReport
from whetstone_trainer.progress import Progress
from whetstone_trainer.recipe import Recipe
from whetstone_trainer.shards import sharded, sum_gradients
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
    """

    model: Any
    rows: Any
    metrics: dict[str, str]
    plan: ChosenPlan


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
    settings = recipe.settings
    workspace = Path(config.workspace_path)
    checkpoints = Checkpoints(workspace, recipe_digest=recipe.digest, keep=config.checkpoint.keep, ranks=ranks)
    resume = checkpoints.newest()
    seconds_before = seconds_of(resume) if resume else 0.0
    rows = Dataset.from_file(str(workspace / PREPARED_FOLDER / ROWS_FILE))
    set_seed(settings.seed)
    model = load_unsloth(config, settings) if config.backend is Backend.UNSLOTH else load_model(config, plan)
    chosen = plan.chosen(kernel_of(model))
    shape = None if config.init_adapter_path or isinstance(model, PeftModel) else lora_config(config, settings, model)
    if config.init_adapter_path:
        model = load_init_adapter(model, config)
    if ranks.shares_base(config.world):
        model, shape = sharded(model, shape, ranks.place), None
    tokens_per_step = prepared.dataset.tokens / prepared.dataset.rows * settings.batch_size
    on_progress = ProgressCallback(progress, tokens_per_step=tokens_per_step)
    on_save = CheckpointCallback(checkpoints, seconds_before=seconds_before)
    trainer = trainer_of(config)(
        model=model,
        arguments=common_arguments(config, settings, plan, output=checkpoints.incoming),
        train_dataset=rows,
        processing_class=load_tokenizer(config),
        peft_config=shape,
        callbacks=[on_progress, on_save, StopCallback(stop, ranks)],
    )
    if ranks.shares_base(config.world):
        sum_gradients(trainer, ranks.place)
    total = settings.max_steps or math.ceil(len(rows) / settings.batch_size) * (settings.epochs or 1)
    if resume is not None and step_of(resume) >= total:
        # Transformers trains on past the end when it resumes there; only the weights are needed.
        set_peft_model_state_dict(trainer.model, load_peft_weights(str(resume), device="cpu"))
        drop_reference(trainer.model)
        metrics = _metrics_of(resume, total * tokens_per_step)
        return Trained(model=trainer.model, rows=rows, metrics=metrics, plan=chosen)
    if plan.compiled:
        compile_layers(trainer.model, workspace)
    with stop.deferred(), checkpoints.naming_a_full_disk():
        trainer.train(resume_from_checkpoint=str(resume) if resume else None)
    if trainer.state.global_step < total:
        step = trainer.state.global_step
        raise StoppedError(f"stopped by SIGTERM after step {step} of {total}; a checkpoint is saved")
    metrics = final_metrics(
        trainer.state.log_history, train_seconds=on_save.train_seconds, tokens=total * tokens_per_step
    )
    drop_reference(trainer.model)
    return Trained(model=trainer.model, rows=rows, metrics=metrics, plan=chosen)


def final_metrics(history: list[Mapping[str, Any]], *, train_seconds: float, tokens: float) -> dict[str, str]:
    """Return the final figures as decimals: trainLoss, trainSeconds, tokensPerSecond, and those of the method.

    Args:
        history: Log of all steps.
        train_seconds: Seconds in the training loop.
        tokens: Tokens trained on.
    """
    losses = [float(entry["loss"]) for entry in history if "loss" in entry][-FINAL_STEPS:]
    return {
        "trainLoss": f"{sum(losses) / len(losses):.4f}",
        "trainSeconds": f"{train_seconds:.1f}",
        "tokensPerSecond": f"{tokens / max(train_seconds, 0.001):.1f}",
        **reward_metrics(history, steps=FINAL_STEPS),
    }


def _metrics_of(checkpoint: Path, tokens: float) -> dict[str, str]:
    from transformers import TrainerState

    state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
    return final_metrics(state.log_history, train_seconds=seconds_of(checkpoint), tokens=tokens)
