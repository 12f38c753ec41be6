"""Figures from trajectories, on trajectories made by hand."""

import json
from pathlib import Path
from typing import Any

import pytest
from whetstone_api.run_artifact import TaskScore, TrialScore
from whetstone_artifacts.trajectory_metrics import CommandCounts, count_commands, trajectory_figures, with_commands


def step(*calls: dict[str, Any], results: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    named = [{"tool_call_id": f"c{number}", **call} for number, call in enumerate(calls)]
    return {"source": "agent", "tool_calls": named, "observation": {"results": results or []}}


def bash(command: object = "ls") -> dict[str, Any]:
    return {"function_name": "bash", "arguments": {"command": command}}


def answered(code: object, call: str | None = "c0", content: str = "") -> dict[str, Any]:
    return {"source_call_id": call, "content": content, "extra": {"exit_code": code}}


@pytest.mark.parametrize(
    ("steps", "counts"),
    [
        ([step(bash(), results=[answered(0)]), step(bash(), results=[answered(2)])], (2, 2, 1)),
        ([step(bash(), bash(), results=[answered(1, "c1"), answered(0, "c0")])], (2, 2, 1)),
        ([step(bash(), results=[answered(3, None)])], (1, 1, 1)),
        # Whose exit code it is cannot be told, or it is told twice: one command has one at most.
        ([step(bash(), bash(), results=[answered(3, None)])], (2, 0, 0)),
        ([step(bash(), results=[answered(3), answered(0)])], (1, 1, 1)),
        ([step(bash(), results=[answered(3, "other")])], (1, 0, 0)),
        # A screen is no exit code, whatever it shows.
        ([step(bash(), results=[{"source_call_id": "c0", "content": "Exit code: 1"}])], (1, 0, 0)),
        ([step(bash(), results=[answered("1")]), step(bash(), results=[answered(True)])], (2, 0, 0)),
        ([step({"function_name": "bash_command", "arguments": {"keystrokes": "ls\n"}})], (1, 0, 0)),
        ([step({"function_name": "bash_command", "arguments": {"keystrokes": ""}}, bash(" "), bash(7))], (0, 0, 0)),
        ([step({"function_name": "mark_task_complete", "arguments": {}}, results=[answered(1)])], (0, 0, 0)),
        ([{"source": "user", "message": "x"}, {"tool_calls": [None], "observation": {"results": [None]}}], (0, 0, 0)),
    ],
)
def test_commands_are_counted_and_exit_codes_never_guessed(
    steps: list[dict[str, Any]], counts: tuple[int, int, int]
) -> None:
    run, known, failed = counts
    assert count_commands(steps) == CommandCounts(run=run, known=known, failed=failed)


def trial(reward: float | None, *, known: int | None = None, failed: int = 0, turns: int | None = None) -> TrialScore:
    return TrialScore(
        trial="t", reward=reward, commands=known, known_commands=known, failed_commands=failed, turns=turns
    )


def test_figures_are_over_scored_trials_and_say_over_how_many() -> None:
    scores = [
        TaskScore(task="a", digest="d", trials=[trial(1.0, known=4, failed=1, turns=5), trial(1.0, known=1, turns=2)]),
        TaskScore(task="b", digest="d", trials=[trial(0.5, known=10, failed=10, turns=9), trial(0.0, turns=1)]),
        # Void: nothing of it counts, whatever it ran.
        TaskScore(task="c", digest="d", trials=[trial(None, known=8, failed=8, turns=3)]),
    ]
    figures = trajectory_figures(scores)
    assert figures is not None
    assert figures.to_wire() == {
        "commands": 15,
        "knownCommands": 15,
        # 3/4, 1 and 0: by trial first, so that the ten failures of one trial count once.
        "commandSuccess": "0.583333",
        "commandTrials": 3,
        "turnsToSolve": "3.5",
        "solvedTrials": 2,
        "recovery": "0.5",
        "failedCommandTrials": 2,
    }


def test_what_no_trial_tells_is_absent() -> None:
    screen = TrialScore(trial="t", reward=1.0, commands=3, known_commands=0, failed_commands=0, turns=4)
    figures = trajectory_figures([TaskScore(task="a", digest="d", trials=[screen])])
    assert figures is not None
    assert figures.to_wire() == {
        "commands": 3,
        "knownCommands": 0,
        "commandTrials": 0,
        "turnsToSolve": "4",
        "solvedTrials": 1,
        "failedCommandTrials": 0,
    }
    assert trajectory_figures([TaskScore(task="a", digest="d", trials=[trial(1.0), trial(None, turns=2)])]) is None


def write(folder: Path, steps: object) -> None:
    (folder / "agent").mkdir(parents=True)
    (folder / "agent" / "trajectory.json").write_text(json.dumps({"steps": steps}))


def test_trials_are_found_in_any_shard_and_all_their_steps_count(tmp_path: Path) -> None:
    write(tmp_path / "0" / "a__1", [step(bash(), results=[answered(1)])])
    for name in ("first", "second"):
        write(tmp_path / "1" / "b__1" / "steps" / name, [step(bash(), results=[answered(0)])])
    write(tmp_path / "1" / "c__1", {"no": "list"})
    names = ("a__1", "b__1", "c__1", "d__1")
    scores = [TaskScore(task="a", digest="d", trials=[TrialScore(trial=name, reward=0.0) for name in names])]
    found = with_commands(scores, [tmp_path / "0", tmp_path / "1"])[0].trials
    assert [(one.commands, one.known_commands, one.failed_commands) for one in found] == [
        (1, 1, 1),
        (2, 2, 0),
        (None, None, None),
        (None, None, None),
    ]


def test_a_link_out_of_the_trial_is_not_followed(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere", [step(bash())])
    (tmp_path / "job" / "a__1").mkdir(parents=True)
    (tmp_path / "job" / "a__1" / "agent").symlink_to(tmp_path / "elsewhere" / "agent")
    scores = [TaskScore(task="a", digest="d", trials=[TrialScore(trial="a__1", reward=0.0)])]
    assert with_commands(scores, [tmp_path / "job"])[0].trials[0].commands is None
