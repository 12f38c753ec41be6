"""Arguments of the trainers, whatever the method."""

from pathlib import Path
from typing import Any

import torch
from whetstone_api.jobs import TrainingConfig

from whetstone_trainer.evaluation import evaluation_arguments
from whetstone_trainer.plan import Plan
from whetstone_trainer.recipe import Settings


def common_arguments(config: TrainingConfig, settings: Settings, plan: Plan, *, output: Path) -> dict[str, Any]:
    """Return the arguments that every method's trainer takes.

    Args:
        config: The job's configuration.
        settings: Hyperparameters as they take effect.
        plan: How the device is used.
        output: Folder that transformers writes checkpoints into.
    """
    on_gpu = torch.cuda.is_available()
    return {
        "output_dir": str(output),
        "per_device_train_batch_size": plan.micro_batch_size,
        "gradient_accumulation_steps": settings.batch_size // (plan.micro_batch_size * config.world.ranks),
        "num_train_epochs": settings.epochs or 1,
        "max_steps": settings.max_steps or -1,
        "learning_rate": float(settings.learning_rate),
        "lr_scheduler_type": "cosine",
        "warmup_steps": float(settings.warmup_ratio),
        "seed": settings.seed,
        "data_seed": settings.seed,
        "use_cpu": not on_gpu,
        "bf16": on_gpu,
        "gradient_checkpointing": plan.checkpointing,
        # Not every method's arguments know it.
        **({"padding_free": True} if plan.padding_free else {}),
        "logging_strategy": "steps",
        "logging_steps": 1,
        # The filter would put an average in the place of a loss that is not finite.
        "logging_nan_inf_filter": False,
        "save_strategy": "steps",
        "save_steps": config.checkpoint.every_steps,
        "dataloader_pin_memory": on_gpu,
        "disable_tqdm": True,
        "report_to": "none",
        **evaluation_arguments(config, micro_batch_size=plan.micro_batch_size),
    }
