"""Training data: what a LoRATrainingJob learns from, and what Prepare finds in it."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from whetstone_api.benchmark_collect import CollectedRef
from whetstone_api.schema import ApiModel, DecimalString, KeyRef, Rule, SignedDecimalString, VolumeName
from whetstone_api.source import FileSource
from whetstone_api.training_evaluation import EvaluationReport


class RowFilter(ApiModel):
    """Which rows of a dataset are used."""

    minimum_reward: SignedDecimalString | None = None
    """Rows whose `reward` (or `success`: true is 1, false 0) is lower are left out; a row with neither is wrong."""
    maximum_turns: Annotated[int, Field(ge=1, le=100000)] | None = None
    """Rows in which the assistant speaks more often are left out."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="has(self.minimumReward) || has(self.maximumTurns)",
            message="a filter needs minimumReward or maximumTurns",
        ),
    )


Weight = Annotated[str, Field(min_length=1, max_length=8, pattern=r"^([1-9][0-9]?(\.[0-9]+)?|0\.[0-9]*[1-9][0-9]*)$")]
"""A number above 0 and below 100, as text."""


class DatasetSpec(ApiModel):
    """Chat data: JSON lines with `messages`, `conversations`, or `prompt` and `completion`."""

    name: VolumeName
    """Name of the dataset in reports."""
    source: FileSource | None = None
    """A file of JSON lines, or of Parquet where its name says `.parquet`; fetched into the workspace from outside."""
    config_map_ref: KeyRef | None = None
    """A key of a ConfigMap that holds the JSON lines."""
    benchmark_run_ref: CollectedRef | None = None
    """The rows that a BenchmarkRun collected; it is waited for until it is Complete."""
    weight: Weight | None = None
    """How often an epoch learns each row, 1 when absent: `"2"` twice, `"0.5"` a half of the rows."""
    filter: RowFilter | None = None
    """Which rows are used; all when absent."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="[has(self.source), has(self.configMapRef), has(self.benchmarkRunRef)].filter(x, x).size() == 1",
            message="give exactly one of source, configMapRef and benchmarkRunRef",
        ),
    )


class TooLong(StrEnum):
    """What becomes of a row that is longer than `maxLength`."""

    FAIL = "Fail"
    """The job fails and names the row."""
    DROP = "Drop"
    """The row is left out."""
    TRUNCATE = "Truncate"
    """The row loses its end; one that loses all that is to be learned is left out."""


Share = Annotated[str, Field(max_length=8, pattern=r"^(0\.[0-9]*[1-9][0-9]*|1(\.0+)?)$")]
"""A share above 0, to 1, as text."""


class PreparationSpec(ApiModel):
    """Bounds on the data; where one does not hold, the job fails before it asks for an accelerator."""

    too_long: TooLong = TooLong.FAIL
    """What becomes of a row that is longer than `maxLength`."""
    maximum_too_long: Share = "0.1"
    """Largest share of the rows that may be dropped or truncated."""
    minimum_rows: Annotated[int, Field(ge=1, le=1000000000)] = 1
    """Fewest different rows to learn from."""


class LossTarget(StrEnum):
    """Which tokens carry loss."""

    ASSISTANT = "Assistant"
    """All that the assistant says."""
    LAST_TURN = "LastTurn"
    """What the assistant says last."""
    ALL = "All"
    """Everything, prompts and results of tools included, as in continued pretraining."""


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


Advice = Annotated[str, Field(max_length=256)]


class DatasetReport(ApiModel):
    """What Prepare found."""

    rows: int
    """Rows that an epoch learns."""
    tokens: int
    """Tokens in them."""
    loss_tokens: int
    """Tokens that carry loss (the assistant's)."""
    loss_share: DecimalString | None = None
    """`lossTokens` / `tokens`."""
    longest: int
    """Tokens of the longest row."""
    max_length: int | None = None
    """Most tokens of a row: as asked, or the longest row's, rounded up within the model's context."""
    read: int | None = None
    """Rows that were read."""
    filtered: int = 0
    """Rows left out by a filter."""
    undrawn: int = 0
    """Rows left out by a weight below 1."""
    duplicates: int = 0
    """Rows left out because an earlier one is the same once rendered."""
    split_rows: int | None = None
    """Conversations that became one row a turn, since the chat template writes earlier turns anew; absent for none."""
    dropped: int = 0
    """Rows left out because they are too long."""
    truncated: int = 0
    """Rows that lost their end because they are too long."""
    truncated_share: DecimalString | None = None
    """`truncated` / rows that were rendered; absent for 0."""
    lengths: Lengths | None = None
    """Lengths of the rows."""
    evaluation: EvaluationReport | None = None
    """Rows that are held out of the training, and in none of the figures of those that are learned."""
    advice: Annotated[list[Advice], Field(max_length=4)] | None = None
    """What a person may want to change."""
    recipe_digest: Annotated[str, Field(max_length=71)] | None = None
    """What was asked, as a digest."""
