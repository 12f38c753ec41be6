"""Supervised fine-tuning by TRL's SFTTrainer on rows that are tokenized and masked already."""

from typing import Any

from trl import SFTConfig, SFTTrainer


def sft_trainer(*, arguments: dict[str, Any], **parts: Any) -> SFTTrainer:
    """Return the trainer.

    Args:
        arguments: The common arguments of a training.
        parts: Model, rows, tokenizer, adapter's shape and callbacks, as TRL's trainers take them.
    """
    return SFTTrainer(args=SFTConfig(**arguments, max_length=None, packing=False), **parts)
