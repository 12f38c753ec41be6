"""Conditions on the result of a BenchmarkRun."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from whetstone_api.schema import ApiModel, DecimalString, Rule, SignedDecimalString


class GateMetric(StrEnum):
    """Figures that a gate can look at."""

    MEAN = "Mean"
    STRICT_MEAN = "StrictMean"
    """Void trials count as 0."""
    COVERAGE = "Coverage"
    """Share of trials that were scored."""
    PASS_AT_K = "PassAtK"  # noqa: S105 - a figure, no password
    """Chance that one of `k` attempts solves a task."""
    ERROR_RATE = "ErrorRate"
    """Share of trials that are void."""
    TIMEOUT_RATE = "TimeoutRate"
    """Share of scored trials whose agent ran out of time."""
    TRUNCATION_RATE = "TruncationRate"
    """Share of scored trials in which a reply was cut off."""
    OVERFLOW_RATE = "OverflowRate"
    """Share of scored trials that outgrew the model's context."""
    TOKENS_PER_TRIAL = "TokensPerTrial"
    """Prompt and completion tokens of a trial, on average."""
    COST = "Cost"
    """What all tokens cost at `spec.prices`."""
    DURATION_SECONDS = "DurationSeconds"
    """Seconds from the first trial's start to the last one's end."""
    COMMAND_SUCCESS = "CommandSuccess"
    """Share of the agent's commands that ended with 0."""
    RECOVERY = "Recovery"
    """Share of the failed commands after which the next one succeeded."""
    TURNS_TO_SOLVE = "TurnsToSolve"
    """Model calls of a trial with a full reward, the median."""
    TODO_COMPLETION = "TodoCompletion"
    """Share of the todos that were marked done."""
    EXTRA_TOKENS = "ExtraTokens"
    """Tokens that edits wrote beyond what they needed, as a share of the latter."""
    PHASE_ADHERENCE = "PhaseAdherence"
    """Share of the calls of tools that their phase allows."""
    SUCCESS = "Success"
    """Share of the conversations with a full reward."""
    TOKENS_PER_TASK = "TokensPerTask"
    """What the assistant wrote for a task, on average."""
    TOKEN_CHANGE = "TokenChange"  # noqa: S105 - a figure, no secret
    """The same against the baseline, as a share: -0.2 is a fifth less."""


DISCIPLINE_METRICS = (
    GateMetric.TODO_COMPLETION,
    GateMetric.EXTRA_TOKENS,
    GateMetric.PHASE_ADHERENCE,
    GateMetric.SUCCESS,
    GateMetric.TOKENS_PER_TASK,
    GateMetric.TOKEN_CHANGE,
)
"""Figures that only a run with `spec.discipline` has."""


class GateConfidence(StrEnum):
    """Confidences of the intervals that a run publishes."""

    NINETY = "0.9"
    NINETY_FIVE = "0.95"
    NINETY_NINE = "0.99"


class GateSpec(ApiModel):
    """A condition on the result."""

    metric: GateMetric
    """Figure to look at."""
    k: Annotated[int, Field(ge=1, le=100)] | None = None
    """Attempts that `PassAtK` is about."""
    minimum: SignedDecimalString | None = None
    """Lowest value that passes."""
    maximum: SignedDecimalString | None = None
    """Highest value that passes."""
    minimum_improvement: DecimalString | None = None
    """The lower end of the interval of the paired difference to the baseline must be above this."""
    confidence: GateConfidence | None = None
    """The interval's end must keep the bound, not the figure alone; 0.95 when absent for `minimumImprovement`."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="[has(self.minimum), has(self.maximum), has(self.minimumImprovement)].filter(x, x).size() == 1",
            message="give exactly one of minimum, maximum and minimumImprovement",
        ),
        Rule(
            rule="!has(self.minimumImprovement) || self.metric == 'Mean'",
            message="minimumImprovement works on Mean only; use minimum or maximum for other figures",
        ),
        Rule(
            rule="has(self.k) == (self.metric == 'PassAtK')",
            message="k belongs to PassAtK, which needs it",
        ),
        Rule(
            rule="!has(self.confidence) || self.metric == 'Mean'",
            message="confidence works on Mean only, the figure with an interval",
        ),
    )
