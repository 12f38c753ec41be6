"""`terminus-2` through the operator, in pods."""

from typing import Any

import pytest
from support.obedient_runs import Runs, rewards
from support.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.long]


def ended(runs: Runs, name: str, **fields: Any) -> dict[str, list[float | None]]:
    """Run a suite of the run's name to its end, and return the rewards."""
    runs.start(name, name, **fields)
    run = runs.end(name)
    assert run["status"]["results"]["void"] == 0
    eventually(lambda: not runs.trial_pods(name), what="no trial pod is left", seconds=60)
    return rewards(runs.artifact(name))


def test_terminus_2_types_in_images_without_tmux_in_two_shards(runs: Runs) -> None:
    commands = {f"typed-{number}": f"echo 0.{number} >answer.txt" for number in range(4)}
    runs.write_tasks("typed", commands)
    found = ended(runs, "typed", agent={"name": "terminus-2", "parameters": {"maxTurns": 8}}, shards=2)
    assert found == {f"typed-{number}": [number / 10] for number in range(4)}
    pods = runs.runner_pods("typed")
    assert sorted(pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] for pod in pods) == [
        "0",
        "1",
    ]
