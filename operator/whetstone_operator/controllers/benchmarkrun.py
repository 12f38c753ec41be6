"""Reconciles BenchmarkRuns: resolve the target and the baseline, run, take over the figures, judge."""

from typing import Any

from pydantic import ValidationError
from whetstone_api.benchmark_result import RunComparison, RunProgress, RunResults, Verdict
from whetstone_api.benchmark_target import MeasuredTarget
from whetstone_api.benchmarkrun import BenchmarkRun
from whetstone_api.reports import TerminationReport
from whetstone_api.source import Source
from whetstone_api.vocabulary import Annotation, ConditionType, Reason

from whetstone_operator.controllers.gates import Judgement, judge_gates, judge_validity
from whetstone_operator.controllers.references import (
    require_account,
    require_baseline,
    require_claims,
    require_config_map,
    require_server,
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
from whetstone_operator.kinds import CONFIG_MAP, Key
from whetstone_operator.resources.benchmark import (
    RUNNER_ACCOUNT,
    BenchmarkPlan,
    benchmark_config_map,
    benchmark_job,
    config_name,
    run_job_name,
)
from whetstone_operator.runtime.clock import to_rfc3339
from whetstone_operator.runtime.queue import Result
from whetstone_operator.runtime.reconcile import Context, Step, Work, load, run_steps

Run = Work[BenchmarkRun]


async def reconcile(context: Context, key: Key) -> Result:
    """Bring one BenchmarkRun a step further."""
    work = await load(context, key, BenchmarkRun)
    if work is None:
        return Result()
    accept_retry(work)
    if has_ended(work):
        return await run_steps(work, [rest])
    return await run_steps(work, Attempt().steps())


class Attempt:
    """What the steps of one reconcile hand on to each other."""

    def __init__(self) -> None:
        self._job: dict[str, Any] | None = None
        self._plan: BenchmarkPlan | None = None

    def steps(self) -> list[Step[BenchmarkRun]]:
        """Return the steps in their order."""
        return [self.find_job, self.suspend, self.progress, self.resolve, self.configure, self.run]

    async def find_job(self, work: Run) -> None:
        """Find the Job of this attempt. The version that it measures was fixed when it was created."""
        self._job = await find_job(work, run_job_name(work.resource, handled_retry(work)))
        if self._job is not None:
            target = _measured(self._job)
            if target is not None:
                work.status["target"] = target.to_wire()

    async def suspend(self, work: Run) -> None:
        """Follow `spec.suspend`."""
        await follow_suspension(work, [self._job] if self._job else [])

    async def progress(self, work: Run) -> None:
        """Take over the latest report."""
        reported = due_report(work)
        if reported is None:
            return
        work.status["progress"] = RunProgress(
            phase=reported.report.phase[:32],
            finished=reported.report.step,
            total=reported.report.max_steps,
            updated_at=to_rfc3339(reported.at),
        ).to_wire()

    async def resolve(self, work: Run) -> None:
        """Decide what to measure and what to compare with; skipped while the Job has its configuration."""
        spec = work.resource.spec
        if self._job is not None:
            configured = await work.context.kube.get(CONFIG_MAP, work.namespace, config_name(work.resource))
            if configured is not None:
                return
        baseline = await require_baseline(work, spec.baseline_ref.name) if spec.baseline_ref else None
        server = await require_server(work, spec.target.model_server_ref.name, field=SERVER_FIELD)
        pinned = _measured(self._job) if self._job else None
        resolved = Resolved(pinned) if pinned else resolve_target(spec.target, server)
        self._plan = BenchmarkPlan(
            run=work.resource,
            target=resolved.target,
            server_url=server.status.url or f"http://{server.metadata.name}.{work.namespace}.svc/v1",
            adapter_source=resolved.source,
            baseline_output=baseline.spec.output if baseline else None,
            settings=work.context.settings,
            retry=handled_retry(work),
        )

    async def configure(self, work: Run) -> None:
        """Check what the runner needs, and write its configuration."""
        if self._plan is None:
            return
        await require_claims(work, _claim_fields(self._plan))
        await require_account(work, RUNNER_ACCOUNT)
        if (code := work.resource.spec.agent.config_map_ref) is not None:
            await require_config_map(work, name=code.name, field="spec.agent.configMapRef")
        await work.context.kube.apply(benchmark_config_map(self._plan))

    async def run(self, work: Run) -> None:
        """Run the trials and take over what came out."""
        if self._job is None:
            if self._plan is None:
                raise RuntimeError("the target is resolved before the Job is created")
            self._job = await work.context.kube.create(benchmark_job(self._plan))
            work.status["target"] = self._plan.target.to_wire()
        _conclude(work, await finished_report(work, self._job, reason=Reason.RUNNING))


def _measured(job: dict[str, Any]) -> MeasuredTarget | None:
    text = (job["metadata"].get("annotations") or {}).get(Annotation.MEASURED_TARGET)
    try:
        return MeasuredTarget.model_validate_json(text or "")
    except ValidationError:
        return None


def _claim_fields(plan: BenchmarkPlan) -> dict[str, str]:
    spec = plan.run.spec
    fields = {
        "spec.suite.harbor.dataset.uri": spec.suite.harbor.dataset.claim,
        "spec.output.uri": spec.output.claim,
        **({"spec.agent.source.uri": spec.agent.source.claim} if spec.agent.source else {}),
    }
    sources: dict[str, Source | None] = {
        f"spec.target ({plan.target.served_name})": plan.adapter_source,
        "spec.baselineRef (its spec.output.uri)": plan.baseline_output,
    }
    return fields | {field: source.claim for field, source in sources.items() if source is not None}


def _conclude(work: Run, report: TerminationReport) -> None:
    spec, result = work.resource.spec, report.result
    results = read_result(work, RunResults, result.get("results"), reporter="runner")
    comparison = None
    if result.get("comparison"):
        comparison = read_result(work, RunComparison, result["comparison"], reporter="runner")
    if result.get("target"):
        work.status["target"] = read_result(work, MeasuredTarget, result["target"], reporter="runner").to_wire()
    work.status["results"] = results.to_wire()
    if comparison is not None:
        work.status["comparison"] = comparison.to_wire()
    for key in ("recipeDigest", "suiteDigest"):
        if result.get(key):
            work.status[key] = str(result[key])
    contaminated = [str(name) for name in result.get("contaminated") or []]
    _set(work, ConditionType.VALID, judge_validity(results, spec.maximum_error_rate))
    gates = judge_gates(spec, results=results, comparison=comparison, contaminated=contaminated)
    _set(work, ConditionType.GATE_PASSED, gates)
    reason = Reason.ADOPTED if result.get("adopted") else Reason.SUCCEEDED
    conclude(work, reason=reason, message=_summary(results, comparison))


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
