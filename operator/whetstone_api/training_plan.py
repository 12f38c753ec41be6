"""How a training uses its device: what changes speed and memory, not what is learned."""

from enum import StrEnum


class BaseQuantization(StrEnum):
    """How the frozen base model is held while its adapter is trained."""

    NF4 = "NF4"
    """Four bits a number, with scales that are quantized too (QLoRA)."""
    INT8 = "Int8"
    """Eight bits a number (LLM.int8)."""
