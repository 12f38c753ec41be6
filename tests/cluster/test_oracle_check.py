"""A suite with a task that its own solution does not solve, in pods: ruled out once, for every run."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cluster.test_suites import Silent, artifact, config
from support.runner_namespace import runner_namespace
from whetstone_agent.environment.cluster import Cluster
from whetstone_agent.run import run_benchmark
from whetstone_api.jobs import BenchmarkConfig
from whetstone_api.vocabulary import TaskRefusal

pytestmark = pytest.mark.cluster
CHECKOUT = Path(__file__).parents[2]
SHELL = CHECKOUT / "examples" / "suites" / "shell"
TASKS = ("copy-file", "release-steps", "sealed-answer")
BROKEN = "sort-numbers"


@pytest.fixture
async def namespace(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """A namespace of the test's own, in which the runner is."""
    async with runner_namespace(monkeypatch) as name:
        yield name


def checked(namespace: str, place: Path, *, name: str) -> BenchmarkConfig:
    """A run that checks its suite, with verdicts that all such runs share."""
    run = config(namespace, place, agent="nop", tasks_folder=place / "tasks", oracle={})
    return run.model_copy(
        update={
            "object": run.object.model_copy(update={"name": name}),
            "output_path": str(place / name),
            "output_uri": f"pvc://data/{name}",
            "verdicts_path": str(place / "verdicts"),
            "verdicts_uri": "pvc://data/verdicts",
        }
    )


async def pods_of(run: BenchmarkConfig) -> int:
    """Count the trial pods that a run ever made, by the events of their scheduling."""
    events = await (await Cluster.shared()).core.list_namespaced_event(run.object.namespace)
    names = {event.involved_object.name for event in events.items if event.reason == "Scheduled"}
    return sum(name.startswith(f"{run.object.name}-") for name in names)


def write_tasks(place: Path) -> None:
    """Copy some tasks; the solution of one sorts the wrong way round."""
    import shutil

    for name in (*TASKS, BROKEN):
        shutil.copytree(SHELL / name, place / "tasks" / name)
    script = place / "tasks" / BROKEN / "solution" / "solve.sh"
    script.write_text("#!/bin/sh\necho 'sort: wrong way' >&2\nexit 1\n")


async def test_a_task_whose_solution_fails_is_ruled_out_and_a_second_run_makes_no_pod_for_it(
    namespace: str, tmp_path: Path
) -> None:
    write_tasks(tmp_path)
    first, second = (checked(namespace, tmp_path, name=name) for name in ("first", "second"))
    report = await run_benchmark(first, Silent())  # type: ignore[arg-type]
    results = report.result["results"]
    assert (results["tasks"], results["mean"], results["void"]) == (len(TASKS), "0", 0), artifact(first).tasks
    assert results["refused"] == [{"reason": "OracleFailed", "count": 1, "names": [BROKEN]}]
    assert (results["oracle"]["solved"], results["oracle"]["reused"]) == (len(TASKS), 0)
    (refused,) = artifact(first).refused
    assert refused.reason is TaskRefusal.ORACLE_FAILED
    assert "sort: wrong way" in refused.message
    # The verifier of sealed-answer has a pod of its own, in the check as in the trials.
    assert await pods_of(first) == (len(TASKS) + 2) + (len(TASKS) + 1)
    report = await run_benchmark(second, Silent())  # type: ignore[arg-type]
    assert report.result["results"]["oracle"]["reused"] == len(TASKS) + 1
    assert artifact(second).refused == artifact(first).refused
    assert await pods_of(second) == len(TASKS) + 1
