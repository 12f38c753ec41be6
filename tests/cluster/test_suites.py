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
from whetstone_cli.__main__ import main
from whetstone_dev.cluster import Cluster
from whetstone_dev.images import BASE_IMAGE, references_of

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


def config(namespace: str, output: Path, *, agent: str, tasks_folder: Path = SHELL, **suite: Any) -> BenchmarkConfig:
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
            "datasetPath": str(tasks_folder),
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


def make_bundle(tmp_path: Path, *arguments: str) -> Path:
    """Make a bundle of the tasks that come as a Dockerfile, with their images in the local registry."""
    command = ["bundle", str(SHELL), "-o", str(tmp_path / "bundle"), "--include", "built-*", "--include", "sealed-*"]
    command += ["--push-images", f"{Cluster().registry}/suites", "--plain-http", "--build-arg", f"BASE={BASE_IMAGE}"]
    command += ["--builder", "buildah", "--builder-option=--network=host", "--builder-option=--layers", *arguments]
    assert main(command) == 0
    return tmp_path / "bundle"


async def test_a_bundle_builds_what_comes_as_a_dockerfile_and_the_oracle_solves_it(
    namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BUILDAH_ISOLATION", "chroot")
    bundle = make_bundle(tmp_path)
    run = config(namespace, tmp_path, agent="oracle", tasks_folder=bundle, refused="Fail")
    report = await run_benchmark(run, Silent())  # type: ignore[arg-type]
    results = report.result["results"]
    assert (results["mean"], results["tasks"], results["void"]) == ("1", 4, 0), artifact(run).tasks
    assert artifact(run).images["sealed-checker"]["tests"].startswith(f"{Cluster().registry}/suites:sealed-checker-")
    capsys.readouterr()
    make_bundle(tmp_path)
    told = capsys.readouterr()
    assert "is being built" not in told.err
    assert told.err.count("is there") == 3
    assert told.out.splitlines()[-1].startswith("found ")


@pytest.mark.long
async def test_the_oracle_solves_all_that_is_admitted_and_the_lazy_nothing(namespace: str, tmp_path: Path) -> None:
    for agent, mean in (("oracle", "1"), ("nop", "0")):
        run = config(namespace, tmp_path, agent=agent)
        report = await run_benchmark(run, Silent())  # type: ignore[arg-type]
        results = report.result["results"]
        assert (results["mean"], results["void"]) == (mean, 0), artifact(run).tasks
        assert results["tasks"] >= 30
        assert {one["reason"] for one in results["refused"]} == {"ImageMissing"}
