"""Many trials at once in one runner: all are at work at the same moment, and none starves."""

import urllib.request
from pathlib import Path
from typing import Any

import pytest
from support.node import main_process
from support.obedient_engine import WAITING
from support.obedient_runs import RUN_SECONDS, Runs, rewards
from support.waiting import eventually
from whetstone_dev.demo.watch import is_true

pytestmark = [pytest.mark.cluster, pytest.mark.long]
TINY = {"requests": {"cpu": "1m", "memory": "4Mi"}, "limits": {"memory": "64Mi"}}
MEBIBYTE = 1 << 20
MEMORY_MEBIBYTES = 1024
"""More than a runner may ever need for that."""


def waiting(runs: Runs) -> int:
    """Return how many conversations wait for the model."""
    [pod] = runs.engine_pods()
    with urllib.request.urlopen(f"http://{pod['status']['podIP']}:8000/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return next(int(float(line.rpartition(" ")[2])) for line in lines if line.startswith(WAITING))


def peak_mebibytes(runs: Runs, name: str) -> int:
    """Return the most memory that the runner of a run has had so far."""
    [pod] = runs.runner_pods(name)
    status = Path(f"/proc/{main_process(pod, 'main')}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 // MEBIBYTE for line in status if line.startswith("VmHWM"))


def all_at_once(runs: Runs, number: int, record: Any) -> None:
    """Bring so many trials before the model at once, let all go on at the same moment, and look at what came of it."""
    name, seconds = f"many-{number}", RUN_SECONDS + 4 * number
    worth = {f"held-{index:03}": index % 5 / 4 for index in range(number)}
    tasks = {task: f"echo {reward} >answer.txt" for task, reward in worth.items()}
    runs.write_tasks(name, tasks, agent_seconds=20 * seconds)
    runs.hold("held-")
    suite = {"harbor": {"dataset": {"uri": f"pvc://data/{name}"}, "trialResources": TINY}}
    try:
        runs.start(name, name, suite=suite, concurrency=number)
        eventually(lambda: waiting(runs) == number, what=f"{number} trials ask the model", seconds=seconds)
        assert len(runs.trial_pods(name)) == number
    finally:
        runs.release()
    eventually(lambda: len(runs.finished(name)) >= number // 2, what="half of the trials have ended", seconds=seconds)
    memory = peak_mebibytes(runs, name)
    record("MiB of the runner", memory)
    run = runs.end(name, seconds=seconds)
    record("seconds of all trials", run["status"]["results"]["durationSeconds"])
    assert is_true(run, "Valid")
    assert run["status"]["results"]["void"] == 0
    assert rewards(runs.artifact(name)) == {task: [reward] for task, reward in worth.items()}
    assert memory < MEMORY_MEBIBYTES
    eventually(lambda: not runs.trial_pods(name), what="no trial pod is left", seconds=seconds)


def test_trials_at_once_in_one_runner(runs: Runs, record_property: Any) -> None:
    all_at_once(runs, 16, record_property)


def test_two_hundred_trials_at_once_in_one_runner(runs: Runs, record_property: Any) -> None:
    all_at_once(runs, 200, record_property)
