"""BenchmarkRun: an agentic benchmark with a verdict that can be trusted."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from whetstone_api.schema import (
    ApiModel,
    DecimalString,
    LocalRef,
    PrinterColumn,
    Resource,
    Resources,
    Rule,
    RunToEndSpec,
    ServedName,
    SignedDecimalString,
    Status,
    condition_column,
)
from whetstone_api.source import Source


class TargetSpec(ApiModel):
    """What to measure: a server's base model, or one of its adapters or aliases."""

    model_server_ref: LocalRef
    """The ModelServer."""
    adapter: ServedName | None = None
    """An adapter of that server; its version at the start of the run is measured."""
    alias: ServedName | None = None
    """An alias of that server; what it serves at the start of the run is measured."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(rule="!(has(self.adapter) && has(self.alias))", message="give at most one of adapter and alias"),
    )


Globs = Annotated[list[Annotated[str, Field(min_length=1, max_length=253)]], Field(max_length=1000)]


class TaskFilter(ApiModel):
    """Which tasks of the dataset to run."""

    include: Globs | None = None
    """Glob patterns of task names; all when absent."""
    exclude: Globs | None = None
    """Glob patterns of task names to leave out."""
    limit: Annotated[int, Field(ge=1, le=100000)] | None = None
    """Only the first so many tasks, by name."""


class HarborSuite(ApiModel):
    """A folder of Harbor tasks."""

    dataset: Source
    """Folder whose sub-folders are Harbor tasks."""
    tasks: TaskFilter | None = None
    """Which tasks to run."""
    trial_resources: Resources | None = None
    """Resources of each trial's container, instead of what its task asks for."""


class SuiteSpec(ApiModel):
    """What the model is asked to do."""

    harbor: HarborSuite
    """Harbor tasks."""


class AgentName(StrEnum):
    """Agents by name."""

    WHETSTONE = "whetstone"
    """Iterative bash: the model proposes a command, the sandbox runs it, the output goes back."""
    ORACLE = "oracle"
    """Runs each task's own solution; should score 1."""
    NOP = "nop"
    """Does nothing; should score 0."""


class AgentParameters(ApiModel):
    """Parameters of the agent `whetstone`."""

    max_turns: Annotated[int, Field(ge=1, le=1000)] = 10
    """Model calls in one trial at most."""
    max_tokens: Annotated[int, Field(ge=1, le=131072)] = 1024
    """Tokens in one reply at most."""
    system_prompt: Annotated[str, Field(min_length=1, max_length=16384)] | None = None
    """System message; the agent's own when absent."""


class AgentSpec(ApiModel):
    """Who works on the tasks."""

    name: AgentName = AgentName.WHETSTONE
    """Agent by name."""
    parameters: AgentParameters = AgentParameters()
    """Its parameters."""


class SamplingSpec(ApiModel):
    """How the model is sampled."""

    temperature: DecimalString = "0"
    """Sampling temperature."""
    top_p: DecimalString = "1"
    """Share of the probability that is sampled from, above 0 and at most 1."""
    seed: Annotated[int, Field(ge=0, le=4294967295)] = 0
    """Seed sent with each request; attempt k adds k."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="double(self.topP) > 0.0 && double(self.topP) <= 1.0",
            message="topP must be above 0 and at most 1",
        ),
    )


class GateMetric(StrEnum):
    """Figures that a gate can look at."""

    MEAN = "Mean"
    STRICT_MEAN = "StrictMean"
    COVERAGE = "Coverage"


class GateSpec(ApiModel):
    """A condition on the result."""

    metric: GateMetric
    """Figure to look at."""
    minimum: DecimalString | None = None
    """Lowest value that passes."""
    minimum_improvement: DecimalString | None = None
    """The lower end of the interval of the paired difference to the baseline must be above this."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="has(self.minimum) != has(self.minimumImprovement)",
            message="give exactly one of minimum and minimumImprovement",
        ),
        Rule(
            rule="!has(self.minimumImprovement) || self.metric == 'Mean'",
            message="minimumImprovement works on Mean only; use minimum for StrictMean and Coverage",
        ),
    )


class BenchmarkRunSpec(RunToEndSpec):
    """What to measure."""

    mutable = frozenset({"suspend", "ttlSecondsAfterFinished"})

    target: TargetSpec
    """What to measure."""
    suite: SuiteSpec
    """What the model is asked to do."""
    agent: AgentSpec = AgentSpec()
    """Who works on the tasks."""
    sampling: SamplingSpec = SamplingSpec()
    """How the model is sampled."""
    attempts: Annotated[int, Field(ge=1, le=100)] = 1
    """Trials of each task."""
    concurrency: Annotated[int, Field(ge=1, le=256)] = 4
    """Trials at a time."""
    baseline_ref: LocalRef | None = None
    """BenchmarkRun to compare with, paired by task."""
    gates: Annotated[list[GateSpec], Field(max_length=16)] | None = None
    """Conditions on the result; a promotion asks for all of them."""
    maximum_error_rate: DecimalString = "0.1"
    """Share of void trials above which the run is not Valid."""
    output: Source
    """Folder of the results; created by the run, never overwritten, never deleted with the object."""
    resources: Resources | None = None
    """Resources of the runner's container."""
    image: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """Runner image; the operator's default when absent."""
    suspend: bool = False
    """Holds the Job back."""
    active_deadline_seconds: Annotated[int, Field(ge=1, le=31536000)] | None = None
    """Seconds that the Job may take, attempts included."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=31536000)] | None = None
    """Seconds after which the finished Job (never this object) is deleted."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="!has(self.gates) || has(self.baselineRef) || self.gates.all(g, !has(g.minimumImprovement))",
            message="a gate with minimumImprovement needs baselineRef",
        ),
        Rule(
            rule="self.output.uri.matches('^pvc://[^/]+/.+')",
            message="output.uri must name a folder inside the claim, as in pvc://results/my-run",
        ),
    )


class RunProgress(ApiModel):
    """Where the run is; written at most every 30 seconds."""

    phase: Annotated[str, Field(max_length=32)]
    """Preflight, Trials or Score."""
    finished: int | None = None
    """Trials that ended."""
    total: int | None = None
    """Trials in all."""
    updated_at: Annotated[str, Field(max_length=64)] | None = None
    """When this was reported, RFC 3339."""


class MeasuredTarget(ApiModel):
    """What was measured."""

    served_name: Annotated[str, Field(max_length=64)]
    """Version that answered every trial."""
    adapter: Annotated[str, Field(max_length=64)] | None = None
    """Adapter's name; absent for the base."""
    digest: Annotated[str, Field(max_length=71)] | None = None
    """Content digest of the adapter; absent for the base."""


class Interval(ApiModel):
    """A confidence interval."""

    low: SignedDecimalString
    """Lower end."""
    high: SignedDecimalString
    """Upper end."""
    confidence: DecimalString = "0.95"
    """Its confidence."""


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
    coverage: DecimalString
    """Share of trials that were scored."""
    void: int
    """Trials that the infrastructure spoiled."""
    timeouts: int = 0
    """Scored trials whose agent ran out of time."""
    prompt_tokens: int | None = None
    """Prompt tokens of all trials."""
    completion_tokens: int | None = None
    """Completion tokens of all trials."""
    duration_seconds: int | None = None
    """Seconds from first trial to last."""
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
    wins: int | None = None
    """Tasks on which this run scored higher."""
    losses: int | None = None
    """Tasks on which the baseline scored higher."""
    ties: int | None = None
    """Tasks on which both scored the same."""
    minimum_detectable: DecimalString | None = None
    """Smallest difference that so many tasks could have shown."""
    message: Annotated[str, Field(max_length=1024)] | None = None
    """Why the runs are not comparable."""


class BenchmarkRunStatus(Status):
    """What is true of the run."""

    progress: RunProgress | None = None
    """Where the run is."""
    target: MeasuredTarget | None = None
    """What was measured."""
    results: RunResults | None = None
    """The figures."""
    comparison: RunComparison | None = None
    """The comparison with the baseline."""
    recipe_digest: Annotated[str, Field(max_length=71)] | None = None
    """What was asked, as a digest: suite, agent, sampling, target's content."""
    suite_digest: Annotated[str, Field(max_length=71)] | None = None
    """Digest of the tasks."""
    handled_retry: Annotated[str, Field(max_length=256)] | None = None
    """Value of the retry annotation that the latest attempt answers."""
    started_at: Annotated[str, Field(max_length=64)] | None = None
    """When the Job started, RFC 3339."""
    finished_at: Annotated[str, Field(max_length=64)] | None = None
    """When the run ended, RFC 3339."""


class BenchmarkRun(Resource):
    """Runs an agent on Harbor tasks against a server, compares with a baseline and judges gates."""

    kind_name = "BenchmarkRun"
    plural = "benchmarkruns"
    short_names = ("bench",)
    columns = (
        condition_column(condition="Ready"),
        condition_column(condition="Ready", field="reason", name="Reason"),
        PrinterColumn(name="Mean", json_path=".status.results.mean"),
        PrinterColumn(name="Verdict", json_path=".status.comparison.verdict"),
        condition_column(condition="GatePassed", name="Gate"),
        PrinterColumn(name="Served", json_path=".status.target.servedName", priority=1),
        PrinterColumn(name="Age", type="date", json_path=".metadata.creationTimestamp"),
    )

    spec: BenchmarkRunSpec
    """What to measure."""
    status: BenchmarkRunStatus = BenchmarkRunStatus()
    """What is true."""
