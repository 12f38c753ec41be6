"""Train: a LoRA adapter by TRL's SFTTrainer on prepared rows, resumed exactly from the newest checkpoint."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig
from peft.utils import load_peft_weights, set_peft_model_state_dict
from transformers import AutoModelForCausalLM, set_seed
from trl import SFTConfig, SFTTrainer
from whetstone_api.jobs import TrainingConfig
from whetstone_api.vocabulary import Reason

from whetstone_trainer.callbacks import ProgressCallback, StopCallback
from whetstone_trainer.checkpoint import CheckpointCallback, Checkpoints, seconds_of, step_of
from whetstone_trainer.errors import StoppedError, UserError
from whetstone_trainer.init_adapter import load_init_adapter
from whetstone_trainer.prepare import load_tokenizer
from whetstone_trainer.prepared import PREPARED_FOLDER, ROWS_FILE, PreparedReport
from whetstone_trainer.progress import Progress
from whetstone_trainer.recipe import Recipe, Settings
from whetstone_trainer.stopping import StopSignal

LARGE_MODEL = 1_000_000_000
"""Parameters from which activations are recomputed to save memory; below, that only costs time."""
UNSERVABLE_MODULES = ("lm_head", "embed_tokens")
FINAL_STEPS = 10
"""Steps over which the reported training loss is averaged."""


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A trained model in memory.

    Args:
        model: PEFT model with the final adapter.
        rows: The prepared rows (columns `input_ids`, `labels`).
        metrics: Final figures as decimals.
    """

    model: Any
    rows: Any
    metrics: dict[str, str]


def train_adapter(
    config: TrainingConfig, recipe: Recipe, *, prepared: PreparedReport, progress: Progress, stop: StopSignal
) -> Trained:
    """Train to the last step.

    Args:
        config: The job's configuration.
        recipe: What is asked.
        prepared: Report of the prepared data in the workspace.
        progress: Where steps are reported.
        stop: SIGTERM.

    Raises:
        UserError: `INVALID_SPEC`, `CHECKPOINT_MISMATCH` or `TRAINING_DIVERGED`.
        StoppedError: SIGTERM came; a checkpoint is saved.
    """
    torch.set_num_threads(available_cpus())
    settings = recipe.settings
    workspace = Path(config.workspace_path)
    checkpoints = Checkpoints(workspace, recipe_digest=recipe.digest, keep=config.checkpoint.keep)
    resume = checkpoints.newest()
    seconds_before = seconds_of(resume) if resume else 0.0
    rows = Dataset.from_file(str(workspace / PREPARED_FOLDER / ROWS_FILE))
    set_seed(settings.seed)
    model = load_model(config)
    parameters = model.num_parameters()
    if config.init_adapter_path:
        model = load_init_adapter(model, config)
    tokens_per_step = prepared.dataset.tokens / prepared.dataset.rows * settings.batch_size
    on_progress = ProgressCallback(progress, tokens_per_step=tokens_per_step)
    on_save = CheckpointCallback(checkpoints, seconds_before=seconds_before)
    trainer = SFTTrainer(
        model=model,
        args=training_arguments(config, settings, output=checkpoints.incoming, parameters=parameters),
        train_dataset=rows,
        processing_class=load_tokenizer(config),
        peft_config=None if config.init_adapter_path else lora_config(config, settings, model),
        callbacks=[on_progress, on_save, StopCallback(stop)],
    )
    total = settings.max_steps or math.ceil(len(rows) / settings.batch_size) * (settings.epochs or 1)
    if resume is not None and step_of(resume) >= total:
        # Transformers trains on past the end when it resumes there; only the weights are needed.
        set_peft_model_state_dict(trainer.model, load_peft_weights(str(resume), device="cpu"))
        return Trained(model=trainer.model, rows=rows, metrics=_metrics_of(resume, total * tokens_per_step))
    with stop.deferred():
        trainer.train(resume_from_checkpoint=str(resume) if resume else None)
    if trainer.state.global_step < total:
        step = trainer.state.global_step
        raise StoppedError(f"stopped by SIGTERM after step {step} of {total}; a checkpoint is saved")
    metrics = final_metrics(
        trainer.state.log_history, train_seconds=on_save.train_seconds, tokens=total * tokens_per_step
    )
    return Trained(model=trainer.model, rows=rows, metrics=metrics)


def available_cpus() -> int:
    """Return the whole CPUs that this process may use: affinity, cut by the control group's quota."""
    count = len(os.sched_getaffinity(0))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return count
    return count if quota == "max" else max(1, min(count, math.ceil(int(quota) / int(period))))


def load_model(config: TrainingConfig) -> Any:
    """Load the base model: float32 on a CPU, bfloat16 on an accelerator."""
    dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    return AutoModelForCausalLM.from_pretrained(config.base_model_path, dtype=dtype, local_files_only=True)


def lora_config(config: TrainingConfig, settings: Settings, model: Any) -> LoraConfig:
    """Return the adapter's shape.

    Raises:
        UserError: `INVALID_SPEC` for modules that the model has not, or that no engine can serve.
    """
    names = [name for name, _ in model.named_modules()]
    for target in config.lora.target_modules or []:
        if target.rsplit(".", 1)[-1] in UNSERVABLE_MODULES:
            raise UserError(
                Reason.INVALID_SPEC,
                f"spec.lora.targetModules names {target}, which cannot be hot-loaded; name linear layers of the blocks",
            )
        if not any(name == target or name.endswith(f".{target}") for name in names):
            linear = sorted({n.rsplit(".", 1)[-1] for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)})
            raise UserError(
                Reason.INVALID_SPEC,
                f"spec.lora.targetModules names {target}, which {config.base_model_source} does not have; its linear"
                f" layers are {', '.join(linear)}",
            )
    return LoraConfig(
        task_type="CAUSAL_LM",
        r=config.lora.rank,
        lora_alpha=config.lora.alpha,
        lora_dropout=float(settings.dropout),
        target_modules=sorted(config.lora.target_modules) if config.lora.target_modules else "all-linear",
        bias="none",
        use_rslora=config.lora.rs_lora,
    )


def training_arguments(config: TrainingConfig, settings: Settings, *, output: Path, parameters: int) -> SFTConfig:
    """Return the trainer's arguments.

    Args:
        config: The job's configuration.
        settings: Hyperparameters as they take effect.
        output: Folder that transformers writes checkpoints into.
        parameters: Parameters of the base model.
    """
    on_gpu = torch.cuda.is_available()
    return SFTConfig(
        output_dir=str(output),
        per_device_train_batch_size=settings.micro_batch_size,
        gradient_accumulation_steps=settings.batch_size // settings.micro_batch_size,
        num_train_epochs=settings.epochs or 1,
        max_steps=settings.max_steps or -1,
        learning_rate=float(settings.learning_rate),
        lr_scheduler_type="cosine",
        warmup_steps=float(settings.warmup_ratio),
        seed=settings.seed,
        data_seed=settings.seed,
        max_length=None,
        packing=False,
        use_cpu=not on_gpu,
        bf16=on_gpu,
        gradient_checkpointing=on_gpu and parameters >= LARGE_MODEL,
        logging_strategy="steps",
        logging_steps=1,
        # The filter would put an average in the place of a loss that is not finite.
        logging_nan_inf_filter=False,
        save_strategy="steps",
        save_steps=config.checkpoint.every_steps,
        dataloader_pin_memory=on_gpu,
        disable_tqdm=True,
        report_to="none",
    )


def final_metrics(history: list[Mapping[str, Any]], *, train_seconds: float, tokens: float) -> dict[str, str]:
    """Return the final figures as decimals: trainLoss, trainSeconds, tokensPerSecond.

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
    }


def _metrics_of(checkpoint: Path, tokens: float) -> dict[str, str]:
    from transformers import TrainerState

    state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
    return final_metrics(state.log_history, train_seconds=seconds_of(checkpoint), tokens=tokens)
