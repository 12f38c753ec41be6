"""What a BenchmarkRun tells of its trials: progress, figures, comparison."""

from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from whetstone_api.benchmark_discipline import DisciplineFigures
from whetstone_api.benchmark_oracle import OracleChecked
from whetstone_api.benchmark_suite import RefusedTasks
from whetstone_api.schema import ApiModel, DecimalString, SignedDecimalString

MILLION: Final = Decimal(1_000_000)
"""Tokens that a price is for."""


class RunProgress(ApiModel):
    """Where the run is; written at most every 30 seconds."""

    phase: Annotated[str, Field(max_length=32)]
    """Fetching, Preflight, WaitingForServer, Oracle, Trials or Score."""
    fetched_bytes: int | None = None
    """Bytes of tasks, environment or agent that are there, while they are fetched."""
    total_bytes: int | None = None
    """Bytes that are fetched in all."""
    finished: int | None = None
    """Trials that ended."""
    total: int | None = None
    """Trials in all."""
    passed: int | None = None
    """Trials with a full reward."""
    failed: int | None = None
    """Trials that were scored with less."""
    void: int | None = None
    """Trials that the infrastructure spoiled; they are run again up to a bound."""
    running: int | None = None
    """Trials at work."""
    eta_seconds: int | None = None
    """Seconds that are left, at the pace so far."""
    updated_at: Annotated[str, Field(max_length=64)] | None = None
    """When this was reported, RFC 3339."""


class TokenPrices(ApiModel):
    """What tokens cost, in any one currency."""

    input_per_million: DecimalString = "0"
    """Price of a million prompt tokens."""
    output_per_million: DecimalString = "0"
    """Price of a million completion tokens."""

    def cost(self, *, prompt_tokens: int, completion_tokens: int) -> Decimal:
        """Return what tokens cost."""
        paid = prompt_tokens * Decimal(self.input_per_million) + completion_tokens * Decimal(self.output_per_million)
        return paid / MILLION


class Interval(ApiModel):
    """A confidence interval."""

    low: SignedDecimalString
    """Lower end."""
    high: SignedDecimalString
    """Upper end."""
    confidence: DecimalString = "0.95"
    """Its confidence."""


class PassAtK(ApiModel):
    """The chance that at least one of k attempts at a task solves it."""

    k: int
    """Attempts."""
    value: DecimalString
    """Mean over tasks of the unbiased estimate."""
    tasks: int
    """Tasks with at least k scored trials, which it is over."""


class CommandFigures(ApiModel):
    """How the agent came along in the scored trials; a figure that no trajectory tells is absent."""

    commands: int
    """Commands whose exit code the trajectories tell."""
    success: DecimalString | None = None
    """Share of them that ended with 0."""
    recovery: DecimalString | None = None
    """Share of the failed ones after which the trial's next command succeeded."""
    solved_after_error: DecimalString | None = None
    """Share of the trials with a failed command that got a full reward all the same."""
    turns_to_solve: DecimalString | None = None
    """Model calls of a trial with a full reward, the median."""


class RungFigures(ApiModel):
    """The tasks that are tagged with one rung of the ladder of tool use."""

    rung: Annotated[str, Field(max_length=32)]
    """The tag: none, single, parallel, sequential, nested or multi-turn."""
    tasks: int
    """Tasks with this tag and at least one scored trial."""
    mean: SignedDecimalString
    """Their mean reward, by task first."""
    success: DecimalString
    """Share of their scored trials with a full reward."""


Intervals = Annotated[list[Interval], Field(max_length=4)]


class RunResults(ApiModel):
    """The figures of a run."""

    tasks: int
    """Tasks with at least one scored trial."""
    trials: int
    """Trials in all."""
    mean: SignedDecimalString
    """Mean reward over scored trials, averaged by task."""
    strict_mean: SignedDecimalString
    """The same with void trials as 0."""
    interval: Interval | None = None
    """Interval of the mean."""
    further_intervals: Intervals | None = None
    """The same at other confidences, for gates."""
    pass_at_k: Annotated[list[PassAtK], Field(max_length=16)] | None = None
    """For each k that `spec.passAtK` names."""
    coverage: DecimalString
    """Share of trials that were scored."""
    void: int
    """Trials that the infrastructure spoiled."""
    refused: Annotated[list[RefusedTasks], Field(max_length=16)] | None = None
    """Tasks of the suite that were not run, by reason."""
    oracle: OracleChecked | None = None
    """What the tasks' own solutions scored here, where `spec.suite.harbor.oracle` asks for it."""
    timeouts: int = 0
    """Scored trials whose agent ran out of time."""
    truncations: int = 0
    """Scored trials in which the token limit cut a reply off."""
    context_overflows: int = 0
    """Scored trials that ended because the conversation outgrew the model's context."""
    expert_steps: int | None = None
    """Steps that the expert did in the model's place, of a `toolUse` suite that has one."""
    prompt_tokens: int | None = None
    """Prompt tokens of all trials."""
    completion_tokens: int | None = None
    """Completion tokens of all trials."""
    cost: DecimalString | None = None
    """What the tokens cost at `spec.prices`."""
    duration_seconds: int | None = None
    """Seconds from first trial to last."""
    rungs: Annotated[list[RungFigures], Field(max_length=8)] | None = None
    """The same by rung of tool use, where tasks are tagged with one."""
    commands: CommandFigures | None = None
    """How the agent came along: commands, errors, turns."""
    discipline: DisciplineFigures | None = None
    """How disciplined the agent worked, by `spec.discipline`."""
    uri: Annotated[str, Field(max_length=512)] | None = None
    """Folder of the full results."""


class Verdict(StrEnum):
    """Outcome of a comparison."""

    BETTER = "Better"
    WORSE = "Worse"
    INCONCLUSIVE = "Inconclusive"
    NOT_COMPARABLE = "NotComparable"


class RunComparison(ApiModel):
    """The paired comparison with the baseline."""

    baseline: Annotated[str, Field(max_length=63)]
    """Name of the baseline run."""
    verdict: Verdict
    """Better or Worse only where the interval excludes 0."""
    difference: SignedDecimalString | None = None
    """Mean of the differences by task."""
    interval: Interval | None = None
    """Interval of the difference."""
    further_intervals: Intervals | None = None
    """The same at other confidences, for gates."""
    wins: int | None = None
    """Tasks on which this run scored higher."""
    losses: int | None = None
    """Tasks on which the baseline scored higher."""
    ties: int | None = None
    """Tasks on which both scored the same."""
    minimum_detectable: DecimalString | None = None
    """Smallest difference that so many tasks could have shown."""
    message: Annotated[str, Field(max_length=1024)] | None = None
    """Why the runs are not comparable, or what limits the comparison."""
