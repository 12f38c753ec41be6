"""A benchmark run from admission to its published result."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

from whetstone_api.benchmark_collect import Collected
from whetstone_api.jobs import BenchmarkConfig, RunConfig, ToolUseConfig
from whetstone_api.reports import Outcome, ProgressReport, TerminationReport
from whetstone_api.run_artifact import RunArtifact
from whetstone_api.vocabulary import Reason
from whetstone_artifacts.reporting import Reporter

from whetstone_agent.admission import admit_tasks, count_refused, told_faults
from whetstone_agent.agents.catalog import asks_model, validate_agent
from whetstone_agent.agents.doorway import model_door
from whetstone_agent.agents.own.code import require_digest
from whetstone_agent.collect import collect
from whetstone_agent.comparison import read_baseline
from whetstone_agent.engine_check import check_engines
from whetstone_agent.engine_use import engine_samples, read_engine_use
from whetstone_agent.failure import RunFailure
from whetstone_agent.harness import (
    ENVIRONMENT,
    AbortedError,
    EnvironmentChoice,
    choose_environment,
    job_settings,
    prepare_job,
    prepare_process,
    run_job,
)
from whetstone_agent.oracle.check import check_tasks
from whetstone_agent.oracle.findings import checked, keep_refused, read_findings
from whetstone_agent.preflight import check_target
from whetstone_agent.recipe import comparability, recipe_digest
from whetstone_agent.request import Request
from whetstone_agent.run_end import carry_out, finished_now, measured_target, progress_reports, results_lock
from whetstone_agent.run_start import aborted, prepare_cluster
from whetstone_agent.scoring import read_trials, run_results, score_tasks
from whetstone_agent.shards import Shard, folder_prefix
from whetstone_agent.tally import Counter


async def run_benchmark(
    config: BenchmarkConfig,
    reporter: Reporter,
    environment: EnvironmentChoice | None = None,
    shard: Shard | None = None,
) -> TerminationReport:
    """Run a benchmark of Harbor tasks, as `carry_out` does.

    Args:
        config: What to do.
        reporter: Gets the progress.
        environment: The sandbox of the trials; pods when absent.
        shard: Which part of the run; what the Job says when absent.

    Returns:
        The report of success; of a shard that did not score the run, without a result.

    Raises:
        RunFailure: There is no result, for a reason that the report will name.
        ArtifactError: The output place cannot be used.
    """
    prepare_process()
    reporter.send(ProgressReport(phase="Preflight"))
    request = _admit(config, shard or Shard.of(config))
    sandbox = environment or choose_environment(config) or EnvironmentChoice()
    return await carry_out(
        request,
        reporter,
        measure=partial(_measure, request, sandbox, reporter),
        make=partial(_artifact, request),
        collect=partial(_collect, request),
    )


def _admit(config: BenchmarkConfig, shard: Shard) -> Request:
    validate_agent(config.agent)
    require_digest(config.agent)
    admission = admit_tasks(Path(config.dataset_path), config.suite)
    baseline = read_baseline(config)
    return Request(
        config=config,
        tasks=admission.tasks,
        refused=admission.refused,
        recipe=recipe_digest(config, admission.tasks),
        baseline=baseline,
        shard=shard,
    )


def _settings(request: Request, environment: EnvironmentChoice) -> dict[str, Any]:
    """Return Harbor's settings for this shard; what they say of trials is the same in every shard."""
    whole = job_settings(request.config, request.tasks, environment)
    return {
        **whole,
        "n_concurrent_trials": request.shard.concurrency(request.config.concurrency),
        "tasks": [{"path": str(task.path)} for task in request.own_tasks],
    }


async def _preflight(request: Request, environment: EnvironmentChoice) -> Request:
    """Look for what would spoil every trial of this shard; return the run without tasks that have no room here."""
    if not request.own_tasks:
        return request
    from whetstone_agent.environment.preflight import refuse_unlimited

    config = request.config
    refuse_unlimited(config.suite.environment, request.tasks)
    if environment.import_path == ENVIRONMENT:
        refused = await prepare_cluster(request, _settings(request, environment))
        keep_refused(request, refused)
        request = request.without(refused)
    if asks_model(config.agent):
        await check_target(server_url=config.server_url, served_name=config.served_name)
    return request


async def _measure(request: Request, sandbox: EnvironmentChoice, reporter: Reporter) -> None:
    """Run the trials of this shard, once it is known what would spoil them and which tasks their solutions rule out."""
    request = await _preflight(request, sandbox)
    request = await check_tasks(request, sandbox, reporter)
    await _run_trials(request, _settings(request, sandbox), reporter)


async def _run_trials(request: Request, settings: dict[str, Any], reporter: Reporter) -> None:
    """Run the trials of this shard, but for those that an earlier try has left."""
    config = request.config
    if not request.own_tasks:
        Counter(request.folder, 0).write(complete=True)
        return
    with results_lock(request):
        await prepare_job(request.folder, settings, folder_prefix(request.recipe))

    try:
        async with (
            model_door(config, request.folder, request.others) as door,
            engine_samples(config, request.folder),
        ):
            progress = progress_reports(request, reporter, ruled_out=lambda: len(read_findings(request).refused))
            may_begin = door.until_there if door is not None else None
            counter = await run_job(request.folder, settings, progress, may_begin=may_begin)
    except AbortedError as error:
        raise aborted(error, config) from error
    if asks_model(config.agent):
        await check_target(server_url=config.server_url, served_name=config.served_name, during=True)
    counter.write(complete=True)


def _artifact(request: Request) -> RunArtifact:
    config, findings = request.config, read_findings(request)
    request = request.without(findings.refused)
    if not request.run_tasks:
        raise RunFailure(Reason.TASKS_INVALID, told_faults(request.refused, config.suite))
    trials = [trial for folder in request.folders for trial in read_trials(folder)]
    scores = score_tasks(trials, tasks=request.run_tasks, attempts=config.attempts)
    measured = comparability(config, request.run_tasks)
    return RunArtifact(
        recipe_digest=request.recipe,
        target=measured_target(config),
        engine_check=check_engines(config),
        comparability=measured,
        results=run_results(scores, uri=config.output_uri).model_copy(
            update={
                "refused": count_refused(request.refused),
                "oracle": checked(findings, uri=config.verdicts_uri) if config.verdicts_uri else None,
            }
        ),
        engine_use=read_engine_use(request.folders),
        tasks=scores,
        refused=request.refused,
        without_solution=findings.without_solution,
        images={task.name: dict(task.images) for task in request.run_tasks},
        finished_at=finished_now(),
        object_name=config.object.name,
        namespace=config.object.namespace,
    )


def _collect(request: Request, artifact: RunArtifact) -> Collected | None:
    spec = request.config.collect
    identities = {task.name: task.identity for task in request.tasks}
    return None if spec is None else collect(request.output, artifact, spec=spec, identities=identities)


async def run_until_stopped(config: RunConfig, reporter: Reporter) -> TerminationReport:
    """Run a benchmark of any suite; SIGTERM cancels the trials, deletes their pods, and asks for another try."""
    import signal

    from whetstone_agent.environment.cluster import Cluster

    task = asyncio.create_task(_run(config, reporter))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        message = "the runner was stopped; finished trials are kept, the next try goes on from them"
        raise RunFailure(Reason.RUNNING, message, outcome=Outcome.RETRY) from None
    finally:
        await Cluster.close_shared()


async def _run(config: RunConfig, reporter: Reporter) -> TerminationReport:
    if isinstance(config, ToolUseConfig):
        from whetstone_agent.tooluse.benchmark import run_tool_use

        return await run_tool_use(config, reporter)
    if not isinstance(config, BenchmarkConfig):
        raise TypeError(f"no runner knows a suite of {type(config).__name__}")
    return await run_benchmark(config, reporter)
