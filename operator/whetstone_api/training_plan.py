"""How a training uses its device: what changes speed and memory, not what is learned."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from whetstone_api.capacity import AUTO, AutoText
from whetstone_api.schema import ApiModel, DecimalString

Bytes = Annotated[str, Field(max_length=16)]
"""An amount of memory for people, as in `6.25Gi`."""


class BaseQuantization(StrEnum):
    """How the frozen base model is held while its adapter is trained."""

    NONE = "None"
    """As it is computed."""
    NF4 = "NF4"
    """Four bits a number, with scales that are quantized too (QLoRA)."""
    INT8 = "Int8"
    """Eight bits a number (LLM.int8)."""

    @property
    def applied(self) -> "BaseQuantization | None":
        """What is done to the weights; None for nothing."""
        return None if self is BaseQuantization.NONE else self


class Switch(StrEnum):
    """Whether something is done."""

    AUTO = "Auto"
    ENABLED = "Enabled"
    DISABLED = "Disabled"


class Packing(StrEnum):
    """How rows of unequal length share a forward pass."""

    AUTO = "Auto"
    PADDING_FREE = "PaddingFree"
    """One after the other without padding; no row attends to another."""
    PADDED = "Padded"
    """Side by side, the shorter ones filled up."""


class Attention(StrEnum):
    """Attention kernel."""

    AUTO = "Auto"
    SDPA = "SDPA"
    """PyTorch's own."""
    FLASH_ATTENTION_2 = "FlashAttention2"
    """The library `flash-attn`, which the trainer's image must hold."""
    EAGER = "Eager"
    """Plain operations, which hold the whole matrix."""


class PlanSpec(ApiModel):
    """How the training uses its device: each is chosen unless fixed. None of it changes what is learned."""

    micro_batch_size: Annotated[int, Field(ge=1, le=65536)] | AutoText = AUTO
    """Rows per forward pass, a divisor of batchSize. Auto: what the GPU's memory, or a CPU container's, allows."""
    gradient_checkpointing: Switch = Switch.AUTO
    """Computes activations again in the backward pass, which saves memory and costs time."""
    packing: Packing = Packing.AUTO
    """How rows of unequal length share a forward pass. Auto: PaddingFree with FlashAttention2, otherwise Padded."""
    attention: Attention = Attention.AUTO
    """Attention kernel. Auto: FlashAttention2 on a GPU where the image has it, otherwise SDPA."""
    compile: Switch = Switch.AUTO
    """Compiles the model's layers. Auto: on a GPU, where the training lasts long enough to pay for it."""
    device_memory: (
        Annotated[str, Field(min_length=1, max_length=16, pattern=r"^[1-9][0-9]*(\.[0-9]+)?(Mi|Gi|M|G)$")] | None
    ) = None
    """Memory of one GPU, as in 80Gi: Prepare fails a job that cannot fit before a GPU is asked for."""


class MemoryPart(ApiModel):
    """One part of an estimate."""

    name: Annotated[str, Field(max_length=32)]
    """weights, adapter, activations, layer, loss, runtime or reference."""
    bytes: int
    """Its size."""


class EstimatedCost(ApiModel):
    """What the training will cost, by the operator's price table, before it has begun."""

    resource: Annotated[str, Field(max_length=253)]
    """What is counted, such as nvidia.com/gpu."""
    per_hour: DecimalString
    """Price of an hour of one, as the table said."""
    currency: Annotated[str, Field(max_length=16)] | None = None
    """As the table said."""
    devices: DecimalString
    """How many the training holds at a time."""
    device_hours: DecimalString | None = None
    """Hours of one device; absent where they are not known."""
    amount: DecimalString | None = None
    """What they cost."""
    basis: Annotated[str, Field(max_length=512)]
    """What the figures stand on, or why there are none."""


class MemoryEstimate(ApiModel):
    """What the training is estimated to take: memory of one device for the longest row of its data, and work."""

    memory: Bytes
    """Of the plan below."""
    least: Bytes
    """Of the plan that takes least."""
    plan: Annotated[str, Field(max_length=256)]
    """What was estimated: the fastest plan, or with plan.deviceMemory the fastest that fits."""
    basis: Annotated[list[MemoryPart], Field(max_length=8)] = Field(
        json_schema_extra={"x-kubernetes-list-type": "atomic"}
    )
    """Its parts in bytes."""
    tokens: int | None = None
    """Tokens that all steps together learn from."""
    operations: DecimalString | None = None
    """Floating-point operations of all steps; absent where the base model's shape does not tell."""
    cost: EstimatedCost | None = None
    """What it will cost; only where the operator's price table names its device."""


class ChosenPlan(ApiModel):
    """How the training uses its device."""

    micro_batch_size: int
    """Rows per forward pass."""
    gradient_checkpointing: bool
    """Whether activations are computed again."""
    packing: Packing
    """How rows share a forward pass."""
    attention: Annotated[str, Field(max_length=64)]
    """Attention kernel, as transformers names it."""
    compiled: bool
    """Whether the layers are compiled."""
    reason: Annotated[str, Field(max_length=1024)]
    """Why it is so."""
