"""BenchmarkRun: an agentic benchmark with a verdict that can be trusted."""

from typing import Annotated, ClassVar

from pydantic import Field

from whetstone_api.benchmark_agent import AgentSpec, SamplingSpec
from whetstone_api.benchmark_collect import Collected, CollectSpec
from whetstone_api.benchmark_discipline import DisciplineRules
from whetstone_api.benchmark_estimate import RunEstimate
from whetstone_api.benchmark_gates import DISCIPLINE_METRICS, GateSpec
from whetstone_api.benchmark_judge import Judged, JudgeSpec
from whetstone_api.benchmark_result import RunComparison, RunProgress, RunResults, TokenPrices
from whetstone_api.benchmark_suite import SuiteSpec
from whetstone_api.benchmark_target import MeasuredTarget, TargetSpec
from whetstone_api.benchmark_tooluse import TOOL_USE_RULES
from whetstone_api.schema import (
    DecimalString,
    LocalRef,
    PrinterColumn,
    QueueName,
    Resource,
    Resources,
    Rule,
    RunToEndSpec,
    Status,
    condition_column,
)
from whetstone_api.source import Source


class BenchmarkRunSpec(RunToEndSpec):
    """What to measure."""

    mutable = frozenset({"suspend", "ttlSecondsAfterFinished"})
    until_success = frozenset({"activeDeadlineSeconds", "queueName", "resources"})

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
    """Trials at a time, over all shards."""
    shards: Annotated[int, Field(ge=1, le=64)] = 1
    """Pods that share the work: each runs its own tasks, with all their attempts."""
    baseline_ref: LocalRef | None = None
    """BenchmarkRun to compare with, paired by task."""
    gates: Annotated[list[GateSpec], Field(max_length=16)] | None = None
    """Conditions on the result; a promotion asks for all of them."""
    pass_at_k: Annotated[list[Annotated[int, Field(ge=1, le=100)]], Field(max_length=16)] | None = None
    """Each k for which pass@k is told, at most `attempts`; 1 and `attempts` when absent."""
    prices: TokenPrices | None = None
    """What tokens cost, for `status.results.cost` and `status.estimate`."""
    collect: CollectSpec | None = None
    """What of the scored trials is kept as training data."""
    discipline: DisciplineRules | None = None
    """Asks for `status.results.discipline`; says which of the agent's tools mean what."""
    judge: JudgeSpec | None = None
    """A model that says what it thinks of each scored trial, after the last one; it changes no score."""
    maximum_error_rate: DecimalString = "0.1"
    """Share of void trials above which the run is not Valid."""
    output: Source
    """Folder of the results; created by the run, never overwritten, never deleted with the object."""
    resources: Resources | None = None
    """Resources of the runner's container."""
    image: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """Runner image; the operator's default when absent."""
    queue_name: QueueName | None = None
    """Kueue's LocalQueue in which the Job waits for quota; it starts at once when absent."""
    suspend: bool = False
    """Holds the Job back; a running one is stopped, and its finished trials are kept."""
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
            rule="self.shards <= self.concurrency",
            message="shards must be at most concurrency: each runs one trial at a time at least",
        ),
        Rule(
            rule="!has(self.gates) || self.gates.all(g, !has(g.k) || g.k <= self.attempts)",
            message="a gate's k is above attempts; raise attempts or lower k",
        ),
        Rule(
            rule="!has(self.gates) || has(self.prices) || self.gates.all(g, g.metric != 'Cost')",
            message="a gate on Cost needs prices",
        ),
        Rule(
            rule="!has(self.gates) || has(self.discipline)"
            f" || self.gates.all(g, !(g.metric in {[str(one) for one in DISCIPLINE_METRICS]}))",
            message="a gate on how disciplined the agent works needs discipline ({} for the usual tools)",
        ),
        Rule(
            rule="!has(self.gates) || has(self.baselineRef) || self.gates.all(g, g.metric != 'TokenChange')",
            message="a gate on TokenChange needs baselineRef",
        ),
        Rule(
            rule="!has(self.passAtK) || self.passAtK.all(k, k <= self.attempts)",
            message="passAtK names a k above attempts; raise attempts or leave it out",
        ),
        Rule(
            rule="!has(self.judge) || !has(self.judge.secretRef) || !has(self.suite.harbor)"
            " || !has(self.suite.harbor.environment) || self.suite.harbor.environment.kind != 'Process'",
            message="judge.secretRef cannot be kept from trials of environment.kind Process; use pods, or a judge"
            " that asks for no key",
        ),
        *TOOL_USE_RULES,
        Rule(
            rule="self.output.uri.matches('^pvc://[^/]+/.+')",
            message="output.uri must name a folder inside the claim, as in pvc://results/my-run",
        ),
    )


class BenchmarkRunStatus(Status):
    """What is true of the run."""

    progress: RunProgress | None = None
    """Where the run is."""
    estimate: RunEstimate | None = None
    """What it will cost, said before it begins; only with `spec.prices`."""
    target: MeasuredTarget | None = None
    """What was measured."""
    results: RunResults | None = None
    """The figures."""
    collected: Collected | None = None
    """The training data that `spec.collect` asked for."""
    judged: Judged | None = None
    """What the judge said."""
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
    """Runs an agent on tasks against a server, compares with a baseline and judges gates."""

    kind_name = "BenchmarkRun"
    plural = "benchmarkruns"
    short_names = ("bench",)
    columns = (
        condition_column(condition="Ready"),
        condition_column(condition="Ready", field="reason", name="Reason"),
        PrinterColumn(name="Done", type="integer", json_path=".status.progress.finished"),
        PrinterColumn(name="Trials", type="integer", json_path=".status.progress.total"),
        condition_column(condition="Valid"),
        PrinterColumn(name="Mean", json_path=".status.results.mean"),
        PrinterColumn(name="Verdict", json_path=".status.comparison.verdict"),
        condition_column(condition="GatePassed", name="Gate"),
        PrinterColumn(name="Phase", json_path=".status.progress.phase", priority=1),
        PrinterColumn(name="Served", json_path=".status.target.servedName", priority=1),
        PrinterColumn(name="Age", type="date", json_path=".metadata.creationTimestamp"),
    )

    spec: BenchmarkRunSpec
    """What to measure."""
    status: BenchmarkRunStatus = BenchmarkRunStatus()
    """What is true."""
