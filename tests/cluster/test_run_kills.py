"""Disturbances amid a run in shards: what has ended stays, the rest runs again, and nothing counts twice."""

from collections.abc import Callable
from typing import Any

import pytest
from support.loop import pod_is_ready
from support.node import kill, restart
from support.obedient_runs import LABEL, SERVE_SECONDS, SERVER, Runs, figures, rewards
from support.waiting import eventually
from whetstone_dev.demo.install import SYSTEM_NAMESPACE
from whetstone_dev.demo.kube import Kube
from whetstone_dev.demo.watch import is_true

pytestmark = pytest.mark.cluster
SUITE = "kills"
QUICK = {"quick-0": "1", "quick-1": "0.5", "quick-2": "0", "quick-3": "1"}
"""What each task is worth: the model does as it is told, and what it is told is not always right."""
COMMANDS = {name: f"echo {reward} >answer.txt" for name, reward in QUICK.items()}
COMMANDS |= {"slow-4": "echo 1 >answer.txt", "slow-5": "for i in 1 2 3 4 5 6; do sleep 2; done; echo 0.25 >answer.txt"}
MEAN = "0.625"
REWARDS = {**{name: [float(reward)] for name, reward in QUICK.items()}, "slow-4": [1.0], "slow-5": [0.25]}


@pytest.fixture(scope="module")
def undisturbed(runs: Runs) -> dict[str, Any]:
    """A run that nothing happens to."""
    runs.write_tasks(SUITE, COMMANDS)
    runs.start("undisturbed", SUITE, shards=2)
    run = runs.end("undisturbed")
    assert rewards(runs.artifact("undisturbed")) == REWARDS
    return run


def kill_a_runner(runs: Runs, name: str) -> None:
    pod = runs.runner_pods(name)[0]
    kill(pod, "main")


def kill_the_operator(runs: Runs, name: str) -> None:
    pod = _operator(runs.kube)
    before = pod["status"]["containerStatuses"][0]["restartCount"]
    kill(pod, "operator")
    eventually(
        lambda: _operator(runs.kube)["status"]["containerStatuses"][0]["restartCount"] > before,
        what="the operator started again",
        seconds=60,
    )


def take_sandboxes_away(runs: Runs, name: str) -> None:
    """As an eviction does: the trials are void, and run again in other pods."""
    taken = runs.trial_pods(name)
    for pod in taken:
        runs.kube.delete("v1", "Pod", name=pod, namespace=runs.namespace)
    eventually(lambda: set(runs.trial_pods(name)) - set(taken), what="a trial runs again", seconds=60)


def restart_the_engine(runs: Runs, name: str) -> None:
    [pod] = runs.engine_pods()
    kill(pod, "engine")
    eventually(lambda: not pod_is_ready(runs.engine_pods()[0]), what="the server is gone", seconds=60)
    runs.wait_serving()


def restart_the_node(runs: Runs, name: str) -> None:
    """All that runs on the node ends, the runners and their trials too."""
    [before] = runs.engine_pods()
    restart()

    def back() -> bool:
        [pod] = runs.engine_pods()
        return pod_is_ready(pod) and _restarts(pod) > _restarts(before)

    eventually(back, what="the server is back", seconds=SERVE_SECONDS)


def suspend_and_resume(runs: Runs, name: str) -> None:
    runs.start(name, SUITE, shards=2, suspend=True)
    eventually(lambda: is_true(runs.get("BenchmarkRun", name), "Suspended"), what="suspended")
    eventually(lambda: not runs.pods(LABEL, name), what="no runner and no trial is left", seconds=90)
    eventually(lambda: not is_true(runs.get("ModelServer", SERVER), "Held"), what="the server is free meanwhile")
    runs.start(name, SUITE, shards=2, suspend=False)


def _restarts(pod: dict[str, Any]) -> int:
    return sum(container["restartCount"] for container in pod["status"]["containerStatuses"])


def _operator(kube: Kube) -> dict[str, Any]:
    labels = "app.kubernetes.io/component=operator"
    [pod] = kube.list("v1", "Pod", namespace=SYSTEM_NAMESPACE, labels=labels)
    return pod


DISTURBANCES = [kill_the_operator, take_sandboxes_away, restart_the_engine, suspend_and_resume, restart_the_node]


def disturbed(runs: Runs, disturb: Callable[[Runs, str], None]) -> dict[str, Any]:
    """Return a run in two shards that was disturbed in its middle; what is true of each such run is asserted."""
    name = disturb.__name__.replace("_", "-")
    runs.write_tasks(SUITE, COMMANDS)
    runs.hold("slow-4")
    runs.start(name, SUITE, shards=2)
    before = runs.wait_finished(name, QUICK)
    jobs = {job["metadata"]["uid"] for job in runs.jobs(LABEL, name)}
    target = runs.get("BenchmarkRun", name)["status"]["target"]
    disturb(runs, name)
    runs.release()
    run = runs.end(name)
    after = runs.finished(name)
    assert {folder: after[folder] for folder in before} == before
    assert sorted(folder.rpartition("__")[0] for folder in after) == sorted(COMMANDS)
    assert rewards(runs.artifact(name)) == REWARDS
    assert run["status"]["target"] == target
    assert {job["metadata"]["uid"] for job in runs.jobs(LABEL, name)} == jobs
    assert is_true(run, "Valid")
    eventually(lambda: not runs.trial_pods(name), what="no trial pod is left", seconds=60)
    return run


def test_killed_runner_loses_no_trial(runs: Runs) -> None:
    run = disturbed(runs, kill_a_runner)
    results = run["status"]["results"]
    assert (results["mean"], results["trials"], results["void"]) == (MEAN, len(COMMANDS), 0)
    restarted = [pod for pod in runs.runner_pods("kill-a-runner") if pod["status"]["phase"] == "Failed"]
    assert len(restarted) == 1


@pytest.mark.long
@pytest.mark.parametrize("disturb", DISTURBANCES, ids=lambda one: one.__name__)
def test_disturbed_run_ends_as_an_undisturbed_one(
    runs: Runs, undisturbed: dict[str, Any], disturb: Callable[[Runs, str], None]
) -> None:
    run = disturbed(runs, disturb)
    assert figures(run) == figures(undisturbed)
    for same in ("target", "recipeDigest", "suiteDigest"):
        assert run["status"][same] == undisturbed["status"][same]


@pytest.mark.long
def test_deleted_run_leaves_nothing_in_the_cluster(runs: Runs, undisturbed: dict[str, Any]) -> None:
    runs.hold("slow-4")
    runs.start("deleted", SUITE, shards=2)
    runs.wait_finished("deleted", QUICK)
    assert runs.trial_pods("deleted")
    runs.remove("deleted")
    runs.release()
    eventually(lambda: not is_true(runs.get("ModelServer", SERVER), "Held"), what="the server is held no more")
