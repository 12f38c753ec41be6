"""Our own suite in pods: every sort of task that a task set may hold, solved by the oracle."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.runner_namespace import runner_namespace
from whetstone_agent.run import run_benchmark
from whetstone_api.jobs import BenchmarkConfig
from whetstone_api.reports import ProgressReport
from whetstone_api.run_artifact import RESULTS_FILE, RunArtifact
from whetstone_dev.images import references_of

pytestmark = pytest.mark.cluster
SHELL = Path(__file__).parents[2] / "examples" / "suites" / "shell"
SORTS = ["partial-credit", "release-steps", "sealed-answer", "environment-variable", "json-oldest"]
TASK_IMAGES = ("debian:trixie-slim", "python:3.13-slim")


class Silent:
    """Takes the reports of a run."""

    def send(self, report: ProgressReport) -> None:
        pass


@pytest.fixture
async def namespace(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """A namespace of the test's own, in which the runner is."""
    async with runner_namespace(monkeypatch) as name:
        yield name


def config(namespace: str, output: Path, *, agent: str, **suite: Any) -> BenchmarkConfig:
    """A run over the suite, with the images that the local registry has."""
    task = references_of()["task"]
    return BenchmarkConfig.model_validate(
        {
            "object": {"kind": "BenchmarkRun", "namespace": namespace, "name": agent, "uid": "u"},
            "reportUrl": "http://127.0.0.1:9/none",
            "serverUrl": "http://127.0.0.1:9/v1",
            "servedName": "base",
            "suite": {
                "dataset": {"uri": "pvc://data/shell"},
                "refused": "Exclude",
                "images": {"map": dict.fromkeys(TASK_IMAGES, task)},
                "trialResources": {"requests": {"cpu": "20m", "memory": "32Mi"}, "limits": {"memory": "256Mi"}},
                **suite,
            },
            "datasetPath": str(SHELL),
            "agent": {"name": agent},
            "sampling": {},
            "attempts": 1,
            "concurrency": 8,
            "outputPath": str(output / agent),
            "outputUri": f"pvc://data/results/{agent}",
        }
    )


def artifact(run: BenchmarkConfig) -> RunArtifact:
    return RunArtifact.model_validate_json((Path(run.output_path) / RESULTS_FILE).read_bytes())


async def test_the_oracle_solves_each_sort_of_task(namespace: str, tmp_path: Path) -> None:
    run = config(namespace, tmp_path, agent="oracle", tasks={"include": SORTS})
    report = await run_benchmark(run, Silent())  # type: ignore[arg-type]
    results = report.result["results"]
    assert (results["mean"], results["tasks"], results["void"]) == ("1", len(SORTS), 0), artifact(run).tasks


@pytest.mark.long
async def test_the_oracle_solves_all_that_is_admitted_and_the_lazy_nothing(namespace: str, tmp_path: Path) -> None:
    for agent, mean in (("oracle", "1"), ("nop", "0")):
        run = config(namespace, tmp_path, agent=agent)
        report = await run_benchmark(run, Silent())  # type: ignore[arg-type]
        results = report.result["results"]
        assert (results["mean"], results["void"]) == (mean, 0), artifact(run).tasks
        assert results["tasks"] >= 30
        assert {one["reason"] for one in results["refused"]} == {"ImageMissing"}
