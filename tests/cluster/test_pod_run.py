"""Whole runs with trials in pods: real Harbor, the oracle, and a runner that is stopped in the middle."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.runner_namespace import runner_namespace
from support.waiting import DEADLINE_SECONDS, machine_factor
from whetstone_agent.environment.cluster import Cluster
from whetstone_agent.environment.manifest import pod_selector
from whetstone_agent.failure import RunFailure
from whetstone_agent.run import run_benchmark
from whetstone_agent.scoring import read_trials
from whetstone_api.jobs import BenchmarkConfig
from whetstone_api.reports import ProgressReport
from whetstone_api.vocabulary import Reason
from whetstone_dev.images import references_of
from whetstone_dev.tasks.folder import write_task
from whetstone_dev.tasks.generate import benchmark_tasks

pytestmark = pytest.mark.cluster
TASKS = 4


class Watcher:
    """Takes the reports of a run and tells when a trial has ended."""

    def __init__(self) -> None:
        self.first_trial_ended = asyncio.Event()

    def send(self, report: ProgressReport) -> None:
        if report.phase == "Trials" and report.step:
            self.first_trial_ended.set()


@pytest.fixture
async def namespace(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """A namespace of the test's own, in which the runner is."""
    async with runner_namespace(monkeypatch) as name:
        yield name


@pytest.fixture
def config(namespace: str, tmp_path: Path) -> BenchmarkConfig:
    """The oracle on a few of the demo's tasks."""
    for task in benchmark_tasks(1, TASKS):
        write_task(task, tmp_path / "tasks", references_of()["task"])
    return BenchmarkConfig.model_validate(
        {
            "object": {"kind": "BenchmarkRun", "namespace": namespace, "name": "oracle", "uid": "u"},
            "reportUrl": "http://127.0.0.1:9/none",
            "serverUrl": "http://127.0.0.1:9/v1",
            "servedName": "base",
            "suite": {
                "dataset": {"uri": "pvc://data/tasks"},
                "trialResources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
            },
            "datasetPath": str(tmp_path / "tasks"),
            "agent": {"name": "oracle"},
            "sampling": {},
            "attempts": 1,
            "concurrency": 2,
            "outputPath": str(tmp_path / "results" / "oracle"),
            "outputUri": "pvc://data/results/oracle",
        }
    )


def scored_trials(config: BenchmarkConfig) -> set[str]:
    """Name the trials that the run's one job folder holds a reward of."""
    (folder,) = (path for path in (Path(config.output_path) / "harbor").iterdir() if path.is_dir())
    return {trial.name for trial in read_trials(folder) if trial.reward is not None}


async def trial_pods(namespace: str) -> list[str]:
    """Name the trial pods that are not being deleted."""
    pods = await (await Cluster.shared()).core.list_namespaced_pod(namespace, label_selector=pod_selector("oracle"))
    return [pod.metadata.name for pod in pods.items if pod.metadata.deletion_timestamp is None]


async def test_the_oracle_solves_the_demos_tasks_and_leaves_no_pod(config: BenchmarkConfig, namespace: str) -> None:
    report = await run_benchmark(config, Watcher())  # type: ignore[arg-type]
    results = report.result["results"]
    assert (results["mean"], results["tasks"], results["void"]) == ("1", TASKS, 0)
    assert await trial_pods(namespace) == []


async def test_a_stopped_run_goes_on_from_its_finished_trials(config: BenchmarkConfig, namespace: str) -> None:
    single = config.model_copy(update={"concurrency": 1})
    watcher = Watcher()
    running = asyncio.create_task(run_benchmark(single, watcher))  # type: ignore[arg-type]
    async with asyncio.timeout(4 * DEADLINE_SECONDS * machine_factor()):
        await watcher.first_trial_ended.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await trial_pods(namespace) == []
    finished = scored_trials(config)
    assert finished
    report = await run_benchmark(single, Watcher())  # type: ignore[arg-type]
    assert report.result["results"]["mean"] == "1"
    trials = scored_trials(config)
    assert finished <= trials
    assert len(trials) == TASKS


async def test_a_namespace_of_restricted_pod_security_is_refused_before_any_trial(
    config: BenchmarkConfig, namespace: str
) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await (await Cluster.shared()).core.patch_namespace(namespace, {"metadata": {"labels": labels}})
    with pytest.raises(RunFailure) as failure:
        await run_benchmark(config, Watcher())  # type: ignore[arg-type]
    assert failure.value.reason is Reason.TRIALS_FORBIDDEN
    assert "violates PodSecurity" in failure.value.message
    assert namespace in failure.value.message
