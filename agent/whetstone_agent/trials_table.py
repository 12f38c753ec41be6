"""`trials.parquet`: a row a trial, for notebooks and spreadsheets. The columns are those of `TrialScore`."""

import json
from pathlib import Path
from typing import Any

from whetstone_api.run_artifact import TRIALS_FILE, RunArtifact, TaskScore, TrialScore
from whetstone_artifacts.replacing import replacing

_TYPES = {
    "string": (
        *("task", "task_digest", "trial", "served_name", "error", "end", "rewards", "steps", "started_at"),
        *("run", "namespace"),
    ),
    "double": ("reward", "seconds", "agent_seconds", "verifier_seconds"),
    "bool": ("void", "timed_out", "truncated", "context_overflow"),
    "int64": ("attempt", "turns", "prompt_tokens", "completion_tokens"),
}
"""Columns by type; `rewards` and `steps` are JSON text."""


def write_trials(output: Path, artifact: RunArtifact) -> None:
    """Write the table by a temporary file and a rename.

    Args:
        output: Folder of the results.
        artifact: The finished run.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(name, pa.type_for_alias(kind)) for kind, names in _TYPES.items() for name in names])
    table = pa.Table.from_pylist(trial_rows(artifact), schema=schema)
    output.mkdir(parents=True, exist_ok=True)
    with replacing(output / TRIALS_FILE) as temporary:
        pq.write_table(table, temporary)


def trial_rows(artifact: RunArtifact) -> list[dict[str, Any]]:
    """Return the rows of the table, in the order of tasks and attempts."""
    return [
        _row(artifact, task, trial, attempt)
        for task in artifact.tasks
        for attempt, trial in enumerate(task.trials, start=1)
    ]


def _row(artifact: RunArtifact, task: TaskScore, trial: TrialScore, attempt: int) -> dict[str, Any]:
    fields = trial.model_dump(mode="json")
    for name in ("rewards", "steps"):
        fields[name] = None if fields[name] is None else json.dumps(fields[name])
    return {
        **fields,
        "task": task.task,
        "task_digest": task.digest,
        "attempt": attempt,
        "void": trial.reward is None,
        "served_name": artifact.target.served_name,
        "run": artifact.object_name,
        "namespace": artifact.namespace,
    }
