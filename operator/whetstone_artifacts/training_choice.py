"""Which micro-batch, and whether with checkpointing: the fastest that a device's memory allows. Pure.

The speed of one forward and backward pass is taken to be `tokens / (tokens + HALF_SPEED_TOKENS)` of what the device can
do, since short passes are bound by launching kernels and not by computing, and `CHECKPOINTED` of that where activations
are computed again. The figures are from one H100 and a model of 3 billion parameters, and for CPUs from two cores and
one of 135 million (`bench/training_cpu.py --sets speed`; with checkpointing it found 0.72). Only the order of the
choices follows from them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal

from whetstone_api.model_facts import ModelFacts
from whetstone_api.training_plan import Attention, BaseQuantization, PlanSpec, Switch
from whetstone_api.training_settings import LoraSpec, Method

from whetstone_artifacts.training_memory import TrainingMemory, TrainingShape, estimate_training

HALF_SPEED_TOKENS = 1500
"""Tokens of a pass at which half of a device's speed is reached."""
CPU_HALF_SPEED_TOKENS = 55
"""The same on a CPU."""
CHECKPOINTED = 0.7
"""Speed with checkpointing, as a share of that without."""
USABLE = 0.92
"""Share of a device's free memory that is planned with; the rest is for the estimate's error and lost corners."""

UNITS = {"Gi": 1 << 30, "Mi": 1 << 20, "G": 10**9, "M": 10**6}


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A micro-batch with or without checkpointing.

    Args:
        micro_batch: Rows of a forward pass.
        checkpointing: Whether activations are computed again.
        memory: What it takes; None where the model's shape is not known.
    """

    micro_batch: int
    checkpointing: bool
    memory: TrainingMemory | None


@dataclass(frozen=True, kw_only=True)
class Freedom:
    """What may be chosen.

    Args:
        batch_size: Rows of an optimizer step on one device.
        micro_batch: Fixed rows of a forward pass; None to choose.
        checkpointing: Fixed; None to choose.
        typical_length: Tokens of a usual row, for the speed.
        half_speed_tokens: Tokens of a pass at which half of the device's speed is reached.
    """

    batch_size: int
    micro_batch: int | None = None
    checkpointing: bool | None = None
    typical_length: int = 1
    half_speed_tokens: int = HALF_SPEED_TOKENS


def freedom_of(plan: PlanSpec, *, batch_size: int, typical_length: int) -> Freedom:
    """Return what a plan leaves open.

    Args:
        plan: What the spec fixes.
        batch_size: Rows of an optimizer step on one device.
        typical_length: Tokens of a usual row.
    """
    fixed, again = plan.micro_batch_size, plan.gradient_checkpointing
    return Freedom(
        batch_size=batch_size,
        micro_batch=fixed if isinstance(fixed, int) else None,
        checkpointing=None if again is Switch.AUTO else again is Switch.ENABLED,
        typical_length=typical_length,
    )


def shape_of(
    *, method: Method, lora: LoraSpec, plan: PlanSpec, quantization: BaseQuantization, longest: int
) -> TrainingShape:
    """Return a training on a GPU of its own, with one row a pass and no checkpointing.

    Args:
        method: What it learns by.
        lora: The adapter's shape.
        plan: What the spec fixes.
        quantization: How the base is held.
        longest: Tokens of the longest row.
    """
    return TrainingShape(
        micro_batch=1,
        # Both sides of a pair pass the model together.
        sides=1 if method is Method.SFT else 2,
        length=longest,
        rank=lora.rank,
        targets=lora.target_modules,
        dropout=Decimal(lora.dropout) > 0,
        quantization=quantization.applied,
        fused_attention=plan.attention is not Attention.EAGER,
    )


def choices(facts: ModelFacts, shape: TrainingShape, freedom: Freedom) -> list[Choice]:
    """Return all choices, the fastest first.

    Args:
        facts: The base model.
        shape: Adapter and longest row; its micro-batch and checkpointing are what is chosen.
        freedom: What may be chosen.
    """
    found = [
        Choice(
            micro_batch=rows,
            checkpointing=again,
            memory=estimate_training(facts, replace(shape, micro_batch=rows, checkpointing=again)),
        )
        for rows in ([freedom.micro_batch] if freedom.micro_batch else _divisors(freedom.batch_size))
        for again in ([False, True] if freedom.checkpointing is None else [freedom.checkpointing])
    ]
    return sorted(found, key=lambda choice: _speed(choice, freedom), reverse=True)


def fastest(found: list[Choice], *, free: int) -> Choice | None:
    """Return the fastest choice that fits, or None.

    Args:
        found: Choices, the fastest first.
        free: Free bytes of the device.
    """
    return next((one for one in found if one.memory and one.memory.total <= free * USABLE), None)


def most_sparing(found: list[Choice]) -> Choice:
    """Return the choice that takes least memory."""
    return min(found, key=lambda one: one.memory.total if one.memory else 0)


def next_smaller(choice: Choice, freedom: Freedom) -> Choice | None:
    """Return what to try after a choice ran out of memory: half the micro-batch, then checkpointing; None at the end.

    Rows of an optimizer step stay, since the micro-batch goes to the next smaller divisor of them.

    Args:
        choice: What did not fit.
        freedom: What may be chosen.
    """
    if freedom.micro_batch is None and choice.micro_batch > 1:
        rows = max(size for size in _divisors(freedom.batch_size) if size <= choice.micro_batch // 2)
        return Choice(micro_batch=rows, checkpointing=choice.checkpointing, memory=None)
    if freedom.checkpointing is None and not choice.checkpointing:
        return Choice(micro_batch=choice.micro_batch, checkpointing=True, memory=None)
    return None


def memory_bytes(text: str) -> int:
    """Read an amount of memory such as `80Gi` or `24G`; a bare number is bytes.

    Raises:
        ValueError: It is none.
    """
    for unit, size in UNITS.items():
        if text.endswith(unit):
            return int(float(text.removesuffix(unit)) * size)
    return int(text)


def _speed(choice: Choice, freedom: Freedom) -> float:
    tokens = choice.micro_batch * freedom.typical_length
    return tokens / (tokens + freedom.half_speed_tokens) * (CHECKPOINTED if choice.checkpointing else 1)


def _divisors(number: int) -> Iterator[int]:
    return (size for size in range(1, number + 1) if number % size == 0)
