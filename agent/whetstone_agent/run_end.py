"""How a run comes to its one result, and hands it on; the same for every kind of suite."""

import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from whetstone_api.benchmark_collect import Collected
from whetstone_api.benchmark_result import RunComparison, Verdict
from whetstone_api.benchmark_target import MeasuredTarget
from whetstone_api.jobs import RunConfig
from whetstone_api.reports import ProgressReport, TerminationReport
from whetstone_api.run_artifact import RESULTS_FILE, RunArtifact
from whetstone_artifacts.adoption import find_run
from whetstone_artifacts.comparison import compare
from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.lock import output_lock, shared_lock
from whetstone_artifacts.replacing import replacing
from whetstone_artifacts.report import write_report
from whetstone_artifacts.reporting import Reporter

from whetstone_agent.discipline import with_discipline
from whetstone_agent.judge import judge_run
from whetstone_agent.request import RunRequest
from whetstone_agent.run_report import run_report, shard_report
from whetstone_agent.scoring import told_artifact
from whetstone_agent.tally import Counter, forget_tally, progress_of, read_tally
from whetstone_agent.trials_table import write_trials
from whetstone_agent.turn import await_turn

log = logging.getLogger(__name__)

_SCORE_SECONDS: Final = 600.0
"""How long a shard waits for another one that looks for results, or scores."""


async def carry_out(
    request: RunRequest,
    reporter: Reporter,
    *,
    measure: Callable[[], Awaitable[None]],
    make: Callable[[], RunArtifact],
    collect: Callable[[RunArtifact], Collected | None],
) -> TerminationReport:
    """Run a benchmark, or this shard of it, or adopt the result that is already there.

    The shard that finds the trials of all shards done scores the run; whichever dies meanwhile is started anew and
    looks again.

    Args:
        request: The run.
        reporter: Gets the progress.
        measure: Runs the trials of this shard.
        make: Reads the trials of all shards and returns the result.
        collect: Keeps what of the result becomes training data.

    Returns:
        The report of success; of a shard that did not score the run, without a result.

    Raises:
        RunFailure: There is no result, for a reason that the report will name.
        ArtifactError: The output place cannot be used.
    """
    holder = f"{request.config.object.uid} {request.config.shards}"
    with shared_lock(request.output, holder=holder), output_lock(request.folder):
        artifact = _adopt(request)
        adopted = artifact is not None
        if artifact is None:
            await await_turn(request.config, reporter)
            await measure()
            artifact = _score(request, reporter, make)
        if artifact is None:
            return shard_report(request)
        if adopted:
            artifact = _told(request, artifact)
        judged = await judge_run(request.config, artifact)
        with results_lock(request):
            _write_page(request, artifact)
            collected = collect(artifact)
    return run_report(request, artifact, adopted=adopted, collected=collected, judged=judged)


def _adopt(request: RunRequest) -> RunArtifact | None:
    """Return the result that is there; where there is none, this shard is at work from now on."""
    with results_lock(request):
        artifact = find_run(request.output, request.recipe)
        if artifact is None:
            forget_tally(request.folder)
        return artifact


def results_lock(request: RunRequest) -> AbstractContextManager[Path]:
    """Keep shards from scoring while another one takes void trials back, and from scoring twice."""
    return output_lock(request.output / RESULTS_FILE, wait_seconds=_SCORE_SECONDS)


def progress_reports(
    request: RunRequest, reporter: Reporter, *, ruled_out: Callable[[], int] = int
) -> Callable[[Counter], None]:
    """Return what tells the count of this shard to the others, and that of all to the operator.

    Args:
        request: The run.
        reporter: Gets the progress.
        ruled_out: How many of its tasks are not run, as far as is known by now.
    """

    def progress(counter: Counter) -> None:
        counter.write()
        tallies = [read_tally(folder) for folder in request.folders]
        tasks = len(request.tasks) - ruled_out()
        reporter.send(progress_of(tallies, total=tasks * request.config.attempts))

    return progress


def _score(request: RunRequest, reporter: Reporter, make: Callable[[], RunArtifact]) -> RunArtifact | None:
    """Return the run's result: scored here where all shards are done; None while others are at work."""
    with results_lock(request):
        artifact = find_run(request.output, request.recipe)
        tallies = [read_tally(folder) for folder in request.folders]
        if artifact is None and all(tally is not None and tally.complete for tally in tallies):
            reporter.send(ProgressReport(phase="Score"))
            artifact = _told(request, make())
            write_trials(request.output, artifact)
            publish_results(request.output, artifact)
        return artifact


def _told(request: RunRequest, artifact: RunArtifact) -> RunArtifact:
    """Return a run with what this request asks to be told of it; an adopted one was measured by another."""
    told = with_discipline(told_artifact(artifact, request.config), request.config, request.baseline)
    return _compared(request, told)


def _compared(request: RunRequest, artifact: RunArtifact) -> RunArtifact:
    """Return a run with the comparison that this request asks for; an adopted one may hold that of another."""
    if request.baseline is None:
        return artifact.model_copy(update={"comparison": None})
    name = request.config.baseline_name or ""
    if artifact.spoiled is not None:
        told = f"this run is not valid: {artifact.spoiled}"
        comparison = RunComparison(baseline=name, verdict=Verdict.NOT_COMPARABLE, message=told)
    else:
        comparison = compare(
            scores=artifact.tasks,
            measured=artifact.comparability,
            baseline=request.baseline,
            baseline_name=name,
        )
    return artifact.model_copy(update={"comparison": comparison})


def measured_target(config: RunConfig) -> MeasuredTarget:
    """Return what was measured."""
    return MeasuredTarget(
        served_name=config.served_name, adapter=config.adapter, digest=config.adapter_digest, engine=config.engine
    )


def finished_now() -> str:
    """Return the time, RFC 3339."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def publish_results(output: Path, artifact: RunArtifact) -> None:
    """Write `results.json` by a temporary file and a rename: the last act, so the file means a finished run."""
    output.mkdir(parents=True, exist_ok=True)
    with replacing(output / RESULTS_FILE) as temporary:
        temporary.write_text(json.dumps(json.loads(artifact.to_json()), indent=1) + "\n")


def _write_page(request: RunRequest, artifact: RunArtifact) -> None:
    """Write the page for people; that this fails takes nothing from the result."""
    baseline = request.config.baseline_path
    try:
        write_report(request.output, artifact, Path(baseline) if baseline is not None else None)
    except (OSError, ArtifactError):
        log.exception("the page of the results was not written; `whetstone report` makes it anew")
