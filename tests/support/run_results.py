"""Results of a run for tests that only need its trials."""

from collections.abc import Sequence

from whetstone_api.benchmark_result import RunResults
from whetstone_api.benchmark_target import MeasuredTarget
from whetstone_api.run_artifact import Comparability, RunArtifact, TaskScore


def run_artifact(tasks: Sequence[TaskScore]) -> RunArtifact:
    return RunArtifact(
        recipe_digest="sha256:0",
        target=MeasuredTarget(served_name="base"),
        comparability=Comparability(suite_digest="s", agent="a", sampling="s", attempts=2, harness="h"),
        results=RunResults(tasks=1, trials=1, mean="0", strict_mean="0", coverage="0", void=0),
        tasks=list(tasks),
        finished_at="2026-01-01T00:00:00Z",
        object_name="run",
        namespace="team",
    )
