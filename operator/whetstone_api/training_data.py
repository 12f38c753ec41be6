"""Training data: what a LoRATrainingJob learns from, and what Prepare finds in it."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from whetstone_api.schema import ApiModel, KeyRef, Rule, VolumeName
from whetstone_api.source import Source
from whetstone_api.training_evaluation import EvaluationReport


class DatasetSpec(ApiModel):
    """Chat data: JSON lines with `messages`, `conversations`, or `prompt` and `completion`."""

    name: VolumeName
    """Name of the dataset in reports."""
    source: Source | None = None
    """A `.jsonl` file in a claim."""
    config_map_ref: KeyRef | None = None
    """A key of a ConfigMap that holds the JSON lines."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(rule="has(self.source) != has(self.configMapRef)", message="give exactly one of source and configMapRef"),
    )


class LossTarget(StrEnum):
    """Which tokens carry loss."""

    ASSISTANT = "Assistant"
    """All that the assistant says."""
    LAST_TURN = "LastTurn"
    """What the assistant says last."""


class LossSpec(ApiModel):
    """What is learned of a conversation."""

    target: LossTarget = LossTarget.ASSISTANT
    """Which of the assistant's turns."""
    mask_suboptimal: bool = False
    """Leaves out turns that the data marks as suboptimal; of a rejected answer, it lowers the marked ones alone."""


class Lengths(ApiModel):
    """Lengths of the rows that are trained on, in tokens: half, nine in ten, 99 in a hundred are at most so long."""

    p50: int
    """Half of the rows."""
    p90: int
    """Nine rows in ten."""
    p99: int
    """99 rows in a hundred."""


class DatasetReport(ApiModel):
    """What Prepare found."""

    rows: int
    """Rows that are trained on."""
    tokens: int
    """Tokens in them."""
    loss_tokens: int
    """Tokens that carry loss (the assistant's)."""
    longest: int
    """Tokens of the longest row."""
    duplicates: int = 0
    """Rows left out because an earlier one is the same once rendered."""
    split_rows: int | None = None
    """Conversations that became one row a turn, since the chat template writes earlier turns anew; absent for none."""
    lengths: Lengths | None = None
    """Lengths of the rows."""
    evaluation: EvaluationReport | None = None
    """Rows that are held out of the training, and in none of the other figures."""
    recipe_digest: Annotated[str, Field(max_length=71)] | None = None
    """What was asked, as a digest."""
