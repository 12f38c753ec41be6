"""Command success, recovery after an error and turns to solve, from trajectories."""

import json
from pathlib import Path
from typing import Any

import pytest
from whetstone_api.benchmark_result import CommandFigures
from whetstone_api.run_artifact import TaskScore, TrialScore
from whetstone_artifacts.command_figures import Walk, command_figures, figures_of


def walk(*codes: int, reward: float = 1.0, turns: int | None = None) -> Walk:
    return Walk(score=TrialScore(trial="t", reward=reward, turns=turns), succeeded=[code == 0 for code in codes])


@pytest.mark.parametrize(
    ("walks", "figures"),
    [
        ([walk(0, 0, 0, 1)], {"commands": 4, "success": "0.75", "solvedAfterError": "1"}),
        (
            [walk(1, 0, 2, 2, 0), walk(127, reward=0)],
            {"commands": 6, "success": "0.333333", "recovery": "0.666667", "solvedAfterError": "0.5"},
        ),
        ([walk(1, 1, reward=0.5)], {"commands": 2, "success": "0", "recovery": "0", "solvedAfterError": "0"}),
        ([walk(turns=3), walk(turns=8), walk(turns=4), walk(turns=1, reward=0)], {"commands": 0, "turnsToSolve": "4"}),
        ([walk()], {"commands": 0}),
    ],
)
def test_figures_say_how_the_agent_came_along(walks: list[Walk], figures: dict[str, Any]) -> None:
    found = figures_of(walks)
    assert found is not None
    assert found.to_wire() == figures


def test_without_scored_trials_there_are_none() -> None:
    assert figures_of([]) is None


def leave(place: Path, *outputs: object) -> None:
    """Leave a trajectory whose commands gave these outputs."""
    place.mkdir(parents=True)
    steps: list[Any] = [{"source": "user", "message": "Exit code: 1"}]
    steps += [{"source": "agent", "observation": {"results": [{"content": one}]}} for one in outputs]
    (place / "trajectory.json").write_text(json.dumps({"steps": [*steps, None, {"observation": 7}]}))


def test_trajectories_are_read_step_by_step_and_void_trials_are_not(tmp_path: Path) -> None:
    job = tmp_path / "harbor" / "job"
    leave(job / "a__1" / "agent", "Exit code: 1\nOutput:\nno", "Exit code: 0\nOutput:\nyes", "a screen", 7)
    leave(job / "b__1" / "steps" / "one" / "agent", "Exit code: 0")
    leave(job / "b__1" / "steps" / "two" / "agent", "Exit code: -9")
    leave(job / "c__1" / "agent", "Exit code: 1")
    (job / "d__1").mkdir()
    rewards = {"a": 1.0, "b": 0.0, "c": None, "d": 1.0, "e": 1.0}
    tasks = [
        TaskScore(task=name, digest="d", trials=[TrialScore(trial=f"{name}__1", reward=reward, turns=2)])
        for name, reward in rewards.items()
    ]
    assert command_figures(tmp_path, tasks) == CommandFigures(
        commands=4, success="0.5", recovery="1", solved_after_error="0.5", turns_to_solve="2"
    )
