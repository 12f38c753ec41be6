"""How a LoRATrainingJob trains: method, shape of the adapter, hyperparameters, checkpoints."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from whetstone_api.schema import ApiModel, DecimalString, Rule


class Method(StrEnum):
    """Training method."""

    SFT = "SFT"
    """On what the assistant says in conversations."""
    DPO = "DPO"
    """On pairs of a better and a worse answer."""


class InitMode(StrEnum):
    """What becomes of an adapter to go on from."""

    CONTINUE = "Continue"
    """It is trained further; its shape stays."""
    MERGE_THEN_NEW = "MergeThenNew"
    """It is frozen into the base model and a new one is trained on top; both are published as one adapter."""


class LoraSpec(ApiModel):
    """The adapter's shape."""

    rank: Annotated[int, Field(ge=1, le=512)] = 16
    """Rank of the update."""
    alpha: Annotated[int, Field(ge=1, le=4096)] = 32
    """Scaling numerator: the update is scaled by alpha / rank."""
    dropout: DecimalString = "0"
    """Dropout on the adapter's input, 0 to below 1."""
    target_modules: (
        Annotated[list[Annotated[str, Field(min_length=1, max_length=128)]], Field(min_length=1, max_length=64)] | None
    ) = None
    """Module names to adapt; all linear layers when absent."""
    rs_lora: bool = False
    """Scales the update by alpha / sqrt(rank), which keeps high ranks learning (rsLoRA)."""


class Hyperparameters(ApiModel):
    """How to train."""

    epochs: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Passes over the data; 1 when neither this nor maxSteps is given."""
    max_steps: Annotated[int, Field(ge=1, le=10000000)] | None = None
    """Optimizer steps, instead of epochs."""
    learning_rate: DecimalString | None = None
    """Peak learning rate; 2e-4 for SFT and 5e-6 for DPO when absent."""
    batch_size: Annotated[int, Field(ge=1, le=65536)] = 8
    """Rows per optimizer step."""
    warmup_ratio: DecimalString = "0.1"
    """Share of the steps in which the learning rate rises."""
    max_length: Annotated[int, Field(ge=16, le=4194304)] | None = None
    """Longest row in tokens; the model's context when absent. A longer row fails the job."""
    seed: Annotated[int, Field(ge=0, le=4294967295)] = 0
    """Seed of shuffling and initialisation."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(rule="!(has(self.epochs) && has(self.maxSteps))", message="give at most one of epochs and maxSteps"),
    )


class CheckpointSpec(ApiModel):
    """When to save."""

    every_steps: Annotated[int, Field(ge=1, le=1000000)] = 50
    """Optimizer steps between checkpoints: at most so many are repeated after a kill."""
    keep: Annotated[int, Field(ge=1, le=100)] = 2
    """Checkpoints kept."""
