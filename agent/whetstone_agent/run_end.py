"""How a run's result is made, once, and handed on; the same for every kind of suite."""

import json
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from whetstone_api.benchmark_target import MeasuredTarget
from whetstone_api.jobs import RunConfig
from whetstone_api.reports import ProgressReport
from whetstone_api.run_artifact import RESULTS_FILE, RunArtifact
from whetstone_artifacts.adoption import find_run
from whetstone_artifacts.comparison import compare
from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.lock import output_lock
from whetstone_artifacts.replacing import replacing
from whetstone_artifacts.report import write_report
from whetstone_artifacts.reporting import Reporter

from whetstone_agent.discipline import with_discipline
from whetstone_agent.request import RunRequest
from whetstone_agent.scoring import told_artifact
from whetstone_agent.tally import Counter, progress_of, read_tally
from whetstone_agent.trials_table import write_trials

log = logging.getLogger(__name__)

_SCORE_SECONDS: Final = 600.0
"""How long a shard waits for another one that looks for results, or scores."""


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


def score(request: RunRequest, reporter: Reporter, make: Callable[[], RunArtifact]) -> RunArtifact | None:
    """Return the run's result: scored here where all shards are done; None while others are at work.

    Args:
        request: The run.
        reporter: Gets the progress.
        make: Reads the trials of all shards and returns the result.
    """
    with results_lock(request):
        artifact = find_run(request.output, request.recipe)
        tallies = [read_tally(folder) for folder in request.folders]
        if artifact is None and all(tally is not None and tally.complete for tally in tallies):
            reporter.send(ProgressReport(phase="Score"))
            artifact = told_run(request, make())
            write_trials(request.output, artifact)
            publish_results(request.output, artifact)
        return artifact


def told_run(request: RunRequest, artifact: RunArtifact) -> RunArtifact:
    """Return a run with what this request asks to be told of it; an adopted one was measured by another."""
    told = with_discipline(told_artifact(artifact, request.config), request.config, request.baseline)
    return _compared(request, told)


def _compared(request: RunRequest, artifact: RunArtifact) -> RunArtifact:
    """Return a run with the comparison that this request asks for; an adopted one may hold that of another."""
    comparison = None
    if request.baseline is not None:
        comparison = compare(
            scores=artifact.tasks,
            measured=artifact.comparability,
            baseline=request.baseline,
            baseline_name=request.config.baseline_name or "",
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


def write_page(request: RunRequest, artifact: RunArtifact) -> None:
    """Write the page for people; that this fails takes nothing from the result."""
    baseline = request.config.baseline_path
    try:
        write_report(request.output, artifact, Path(baseline) if baseline is not None else None)
    except (OSError, ArtifactError):
        log.exception("the page of the results was not written; `whetstone report` makes it anew")
