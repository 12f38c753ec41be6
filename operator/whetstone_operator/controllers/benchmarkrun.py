"""Reconciles BenchmarkRuns: resolve the target and the baseline, run, take over the figures, judge."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from whetstone_api.benchmark_collect import Collected
from whetstone_api.benchmark_judge import Judged
from whetstone_api.benchmark_result import RunComparison, RunResults, Verdict
from whetstone_api.benchmark_target import EngineCheck, MeasuredTarget
from whetstone_api.benchmarkrun import BenchmarkRun
from whetstone_api.modelserver import ModelServer
from whetstone_api.reports import TerminationReport
from whetstone_api.source import Source
from whetstone_api.vocabulary import Annotation, ConditionType, Label, Reason

from whetstone_operator.controllers.engine_check import judge_engines
from whetstone_operator.controllers.engine_identity import engine_identity, identity_change
from whetstone_operator.controllers.gates import Judgement, judge_gates, judge_validity, why_not_valid
from whetstone_operator.controllers.hold import at_work, require_free
from whetstone_operator.controllers.job_changes import follow_changes
from whetstone_operator.controllers.job_outcome import is_finished
from whetstone_operator.controllers.judged import judge_state
from whetstone_operator.controllers.queueing import queue_of
from whetstone_operator.controllers.references import (
    find_run,
    require_account,
    require_baseline,
    require_claims,
    require_config_map_key,
    require_secret_key,
    require_server,
)
from whetstone_operator.controllers.run_estimate import estimate_run
from whetstone_operator.controllers.run_places import require_places
from whetstone_operator.controllers.run_progress import (
    ended_progress,
    forget_trials,
    progress_of,
    report_trials,
    told_waiting,
)
from whetstone_operator.controllers.run_to_end import (
    accept_retry,
    conclude,
    due_report,
    find_job,
    finished_report,
    follow_suspension,
    handled_retry,
    has_ended,
    read_result,
    rest,
)
from whetstone_operator.controllers.target import SERVER_FIELD, Resolved, resolve_target
from whetstone_operator.controllers.turns import STARTING, require_turn
from whetstone_operator.kinds import CONFIG_MAP, DEPLOYMENT, JOB, Key
from whetstone_operator.resources.benchmark import (
    RUN,
    RUNNER_ACCOUNT,
    BenchmarkPlan,
    benchmark_config_map,
    benchmark_job,
    config_name,
    run_job_name,
    server_capacity,
)
from whetstone_operator.resources.modelserver import engine_deployment_name
from whetstone_operator.resources.oracle import verdicts_place
from whetstone_operator.runtime.outcome import Interrupt, Waiting
from whetstone_operator.runtime.queue import Result
from whetstone_operator.runtime.reconcile import Context, Step, Work, load, run_steps

Run = Work[BenchmarkRun]


async def reconcile(context: Context, key: Key) -> Result:
    """Bring one BenchmarkRun a step further."""
    work = await load(context, key, BenchmarkRun)
    if work is None:
        forget_trials(key)
        return Result()
    accept_retry(work)
    if has_ended(work):
        forget_trials(key)
        return await run_steps(work, [rest])
    return await run_steps(work, Attempt().steps())


class Attempt:
    """What the steps of one reconcile hand on to each other."""

    def __init__(self) -> None:
        self._job: dict[str, Any] | None = None
        self._plan: BenchmarkPlan | None = None

    def steps(self) -> list[Step[BenchmarkRun]]:
        """Return the steps in their order."""
        return [
            self.find_job,
            self.change,
            self.estimate,
            self.suspend,
            self.progress,
            self.resolve,
            self.configure,
            self.run,
        ]

    async def find_job(self, work: Run) -> None:
        """Find the Job of this attempt. The version that it measures was fixed when it was created."""
        self._job = await find_job(work, run_job_name(work.resource, handled_retry(work)))
        if self._job is not None:
            target = _measured(self._job)
            if target is not None:
                work.status["target"] = target.to_wire()

    async def change(self, work: Run) -> None:
        """Follow what of the spec may change."""
        await follow_changes(work, {RUN: self._job} if self._job else {})

    async def _require_free(self, work: Run) -> None:
        server = work.resource.spec.target.model_server_ref.name
        jobs = await work.context.kube.list(JOB, work.namespace, {str(Label.HOLDS): server})
        shared = work.resource.spec.target.shared
        require_free(jobs, run=work.name, server=server, shared=shared, now=work.now)

    async def estimate(self, work: Run) -> None:
        """Say what the run will cost, before anything is spent: of a suspended one too."""
        spec = work.resource.spec
        if self._job is not None or spec.prices is None:
            return
        baseline = await find_run(work, spec.baseline_ref.name) if spec.baseline_ref else None
        work.status["estimate"] = estimate_run(spec, spec.prices, baseline).to_wire()

    async def suspend(self, work: Run) -> None:
        """Follow `spec.suspend`; a Job that goes on waits while another run measures the server."""
        job = self._job
        if job is None or work.resource.spec.suspend or at_work(job) or queue_of(job) or is_finished(job):
            await follow_suspension(work, [job] if job else [])
            return
        async with STARTING:
            await self._require_free(work)
            await follow_suspension(work, [job])

    async def progress(self, work: Run) -> None:
        """Take over the latest report."""
        report_trials(work.key, work.context.board.get(work.key))
        reported = due_report(work)
        if reported is None:
            return
        work.status["progress"] = progress_of(reported).to_wire()

    async def resolve(self, work: Run) -> None:
        """Decide what to measure and what to compare with; skipped while the Job has its configuration."""
        spec = work.resource.spec
        if self._job is not None:
            configured = await work.context.kube.get(CONFIG_MAP, work.namespace, config_name(work.resource))
            if configured is not None:
                return
        baseline = await require_baseline(work, spec.baseline_ref.name) if spec.baseline_ref else None
        server = await require_server(work, spec.target.model_server_ref.name, field=SERVER_FIELD)
        resolved = _resolve(work, server, job=self._job, deployment=await _deployment(work))
        self._plan = BenchmarkPlan(
            run=work.resource,
            target=resolved.target,
            server_url=server.status.url or f"http://{server.metadata.name}.{work.namespace}.svc/v1",
            adapter_source=resolved.source,
            baseline_output=baseline.spec.output if baseline else None,
            baseline_invalid=why_not_valid(baseline) if baseline else None,
            settings=work.context.settings,
            retry=handled_retry(work),
            capacity=server_capacity(server),
        )

    async def configure(self, work: Run) -> None:
        """Check what the runner needs, and write its configuration."""
        if self._plan is None:
            return
        await require_claims(work, _claim_fields(self._plan))
        if work.resource.spec.suite.tool_use is None:
            await require_account(work, RUNNER_ACCOUNT)
        await _require_keys(work)
        await require_places(work)
        await work.context.kube.apply(benchmark_config_map(self._plan))

    async def run(self, work: Run) -> None:
        """Run the trials and take over what came out."""
        if self._job is None:
            if self._plan is None:
                raise RuntimeError("the target is resolved before the Job is created")
            async with STARTING:
                await self._require_free(work)
                self._job = await work.context.kube.create(benchmark_job(self._plan))
            work.status["target"] = self._plan.target.to_wire()
        try:
            report = await finished_report(work, self._job, reason=Reason.RUNNING)
        except Waiting as waiting:
            if waiting.reason == Reason.RUNNING:
                await require_turn(work, self._job)
            raise told_waiting(waiting, self._job) from None
        _conclude(work, report, engines=await self._judge_engines(work, report.result))

    async def _judge_engines(self, work: Run, result: Mapping[str, Any]) -> Judgement | None:
        """Return what has become of the engines that makes the run worthless; None where nothing has."""
        if result.get("engineCheck"):
            check = read_result(work, EngineCheck, result["engineCheck"], reporter="runner")
            return judge_engines(check.change, unknown=False)
        if result.get("adopted"):
            return judge_engines(None, unknown=bool((result.get("target") or {}).get("engine")))
        return judge_engines(await self._engine_change(work), unknown=False)

    async def _engine_change(self, work: Run) -> str | None:
        """Return what has become of the engines since the start; for a runner that could not ask."""
        target = _measured(self._job) if self._job else None
        if target is None or target.engine is None:
            return None
        deployment = await _deployment(work)
        ended_at = (self._job or {}).get("status", {}).get("completionTime")
        return None if deployment is None else identity_change(target.engine, deployment, ended_at=ended_at)


async def _require_keys(work: Run) -> None:
    """Check that the keys exist that trials of a `toolUse` suite cannot do without."""
    suite = work.resource.spec.suite.tool_use
    for field, reference in (suite.secrets if suite is not None else {}).items():
        await require_secret_key(work, reference, field=field)
    if suite is not None and (authority := suite.authority) is not None:
        field = "spec.suite.toolUse.retriever.elasticsearch.authority"
        await require_config_map_key(work, name=authority.name, key=authority.key, field=field)


async def _deployment(work: Run) -> dict[str, Any] | None:
    """Return the Deployment of the server that is measured."""
    return await work.context.kube.get(
        DEPLOYMENT, work.namespace, engine_deployment_name(work.resource.spec.target.model_server_ref.name)
    )


def _resolve(
    work: Run, server: ModelServer, *, job: dict[str, Any] | None, deployment: dict[str, Any] | None
) -> Resolved:
    """Return the version to measure: that of the attempt's first Job, whatever the server has by now."""
    pinned = _measured(job) if job else None
    if pinned is None and "startedAt" in work.status and "target" in work.status:
        pinned = MeasuredTarget.model_validate(work.status["target"])
    try:
        now = resolve_target(work.resource.spec.target, server)
    except Interrupt:
        if pinned is None:
            raise
        return Resolved(pinned)
    if pinned is None:
        engine = engine_identity(deployment) if deployment else None
        return Resolved(now.target.model_copy(update={"engine": engine}), now.source)
    same = (now.target.served_name, now.target.digest) == (pinned.served_name, pinned.digest)
    return Resolved(pinned, now.source if same else None)


def _measured(job: dict[str, Any]) -> MeasuredTarget | None:
    text = (job["metadata"].get("annotations") or {}).get(Annotation.MEASURED_TARGET)
    try:
        return MeasuredTarget.model_validate_json(text or "")
    except ValidationError:
        return None


def _claim_fields(plan: BenchmarkPlan) -> dict[str, str]:
    spec = plan.run.spec
    fields = spec.suite.claims
    sources: dict[str, Source | None] = {
        "spec.suite.harbor.oracle.verdicts.uri": verdicts_place(spec),
        "spec.output.uri": spec.output,
        "spec.agent.source.uri": spec.agent.in_claim,
        f"spec.target ({plan.target.served_name})": plan.adapter_source,
        "spec.baselineRef (its spec.output.uri)": plan.baseline_output,
    }
    return fields | {field: source.claim for field, source in sources.items() if source is not None}


def _conclude(work: Run, report: TerminationReport, *, engines: Judgement | None) -> None:
    spec, result = work.resource.spec, report.result
    results = read_result(work, RunResults, result.get("results"), reporter="runner")
    comparison = None
    if result.get("comparison"):
        comparison = read_result(work, RunComparison, result["comparison"], reporter="runner")
    if result.get("target"):
        work.status["target"] = read_result(work, MeasuredTarget, result["target"], reporter="runner").to_wire()
    work.status["results"] = results.to_wire()
    work.status["progress"] = ended_progress(results).to_wire()
    if comparison is not None:
        work.status["comparison"] = comparison.to_wire()
    for key in ("recipeDigest", "suiteDigest"):
        if result.get(key):
            work.status[key] = str(result[key])
    if result.get("collected"):
        work.status["collected"] = read_result(work, Collected, result["collected"], reporter="runner").to_wire()
    if result.get("judged"):
        judged = read_result(work, Judged, result["judged"], reporter="runner")
        work.status["judged"] = judged.to_wire()
        _set(work, ConditionType.JUDGED, judge_state(judged))
    contaminated = [str(name) for name in result.get("contaminated") or []]
    validity = judge_validity(results, spec.maximum_error_rate)
    gates = judge_gates(spec, results=results, comparison=comparison, contaminated=contaminated)
    if engines is not None and (engines.status == "False" or validity.status == "True"):
        validity = gates = engines
    _set(work, ConditionType.VALID, validity)
    _set(work, ConditionType.GATE_PASSED, gates)
    reason = Reason.ADOPTED if result.get("adopted") else Reason.SUCCEEDED
    told = _summary(results, comparison)
    conclude(work, reason=reason, message=told if validity.status != "False" else f"not valid, so no score: {told}")


def _set(work: Run, condition: ConditionType, judgement: Judgement) -> None:
    work.conditions.set(condition, judgement.status, reason=judgement.reason, message=judgement.message)


def _summary(results: RunResults, comparison: RunComparison | None) -> str:
    told = f"mean {results.mean} over {results.tasks} tasks ({results.void} of {results.trials} trials void)"
    if results.refused:
        told += f", {sum(one.count for one in results.refused)} tasks refused"
    if comparison is None:
        return told
    if comparison.verdict is Verdict.NOT_COMPARABLE or comparison.interval is None:
        return f"{told}; not comparable with {comparison.baseline}: {comparison.message}"
    interval = f"{comparison.interval.low} to {comparison.interval.high}"
    return f"{told}; {comparison.verdict} against {comparison.baseline}: {comparison.difference} ({interval})"
