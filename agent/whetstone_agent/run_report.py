"""What a run, or a shard of one, tells the operator at its end."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from whetstone_api.adapter_artifact import LINEAGE_FILE, Lineage
from whetstone_api.benchmark_collect import Collected
from whetstone_api.benchmark_judge import Judged
from whetstone_api.jobs import RunConfig
from whetstone_api.reports import Outcome, TerminationReport
from whetstone_api.run_artifact import RunArtifact
from whetstone_api.vocabulary import Reason

from whetstone_agent.recipe import NOT_ISOLATED
from whetstone_agent.request import RunRequest
from whetstone_agent.tasks import contaminated_tasks

log = logging.getLogger(__name__)

_SHOWN_CONTAMINATED: Final = 16


def run_report(
    request: RunRequest, artifact: RunArtifact, *, adopted: bool, collected: Collected | None, judged: Judged | None
) -> TerminationReport:
    """Return the report of a run that has its result, measured or adopted."""
    config = request.config
    scored = {score.task for score in artifact.tasks}
    tasks = [task for task in request.tasks if task.name in scored]
    contaminated = contaminated_tasks(tasks, training_tasks(config))
    result: dict[str, Any] = {
        "target": artifact.target.to_wire(),
        "results": artifact.results.to_wire(),
        "recipeDigest": artifact.recipe_digest,
        "suiteDigest": artifact.comparability.suite_digest,
        "contaminated": contaminated[:_SHOWN_CONTAMINATED],
        "adopted": adopted,
        "finishedAt": artifact.finished_at,
    }
    if collected is not None:
        result["collected"] = collected.to_wire()
    if judged is not None:
        result["judged"] = judged.to_wire()
    if artifact.engine_check is not None:
        result["engineCheck"] = artifact.engine_check.to_wire()
    if artifact.comparison is not None:
        result["comparison"] = artifact.comparison.to_wire()
    return TerminationReport(
        outcome=Outcome.SUCCEEDED,
        reason=Reason.ADOPTED if adopted else Reason.SUCCEEDED,
        message=_sentence(artifact, contaminated, adopted=adopted),
        result=result,
    )


def shard_report(request: RunRequest) -> TerminationReport:
    """Return the report of a shard that leaves the scoring to another one."""
    shard = request.shard
    return TerminationReport(
        outcome=Outcome.SUCCEEDED,
        reason=Reason.SUCCEEDED,
        message=f"shard {shard.index} of {shard.count} has its trials; the shard that ends last scores the run",
    )


def _sentence(artifact: RunArtifact, contaminated: Sequence[str], *, adopted: bool) -> str:
    results = artifact.results
    text = (
        f"{artifact.target.served_name}: mean {results.mean} over {results.tasks} tasks"
        f" ({results.trials} trials, {results.void} void)"
    )
    if adopted:
        text += f"; adopted from the output place, measured by {artifact.namespace}/{artifact.object_name}"
    if NOT_ISOLATED in artifact.comparability.harness:
        text += f"; {NOT_ISOLATED}"
    if contaminated:
        text += f"; {len(contaminated)} tasks were in the adapter's training data"
    return text


def training_tasks(config: RunConfig) -> list[str]:
    """Return the digests of the tasks in the adapter's training data, from its lineage where that can be read."""
    known = list(config.adapter_task_digests)
    if config.adapter_path is None:
        return known
    path = Path(config.adapter_path) / LINEAGE_FILE
    try:
        return known + Lineage.model_validate_json(path.read_bytes()).task_digests
    except (OSError, ValidationError) as error:
        log.warning("the adapter's lineage %s cannot be read, so contamination is judged without it: %s", path, error)
        return known
