"""Which of TRL's trainers a job's method takes."""

from collections.abc import Callable
from functools import partial
from typing import Any

from whetstone_api.jobs import TrainingConfig

from whetstone_trainer.dpo import dpo_trainer, load_reference_model
from whetstone_trainer.preference_rows import preference_of
from whetstone_trainer.sft import sft_trainer


def trainer_of(config: TrainingConfig) -> Callable[..., Any]:
    """Return what makes the trainer of the job's method, from arguments, model, rows, tokenizer and callbacks."""
    preference = preference_of(config)
    if preference is None:
        return sft_trainer
    return partial(
        dpo_trainer,
        preference=preference,
        ref_model=load_reference_model(config),
        reference_adapter=config.reference.adapter_path if config.reference else None,
    )
