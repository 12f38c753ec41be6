"""Figures of discipline, on trajectories made by hand, as docs/discipline.md defines them."""

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.data_rows import call, called, conversation, said, write_rows
from whetstone_api.benchmark_discipline import DisciplineRules
from whetstone_artifacts.data.discipline import Tally, Trajectory, figures_of, tally, token_change
from whetstone_artifacts.data.formats import to_messages
from whetstone_cli.__main__ import main
from whetstone_cli.data.metrics import TARGETS
from whetstone_cli.exits import EXIT_INVALID

ASKED = said("user", "Do it")
DONE, FINISH = call("todo_complete", notes="n"), call("job_complete")
WORK = call("bash", command="ls")


def plan(count: int) -> dict[str, Any]:
    return call("next_phase_todos", todos=[f"todo {number}" for number in range(count)])


def trajectory(*calls: dict[str, Any], results: list[str] | None = None, **more: Any) -> Trajectory:
    messages = [ASKED]
    for number, one in enumerate(calls):
        messages += [called(one), said("tool", results[number] if results else "ok")]
    return Trajectory(messages=to_messages({"messages": messages}), **{"task": "", **more})


def counted(one: Trajectory) -> Tally:
    return tally(one, DisciplineRules())


@pytest.mark.parametrize(
    ("one", "done", "todos"),
    [
        (trajectory(plan(3), WORK, DONE, DONE), 2, 3),
        (trajectory(plan(1), DONE, plan(2), DONE, DONE, FINISH), 3, 3),
        # Without a plan the question is the one todo, and no more than that can be done.
        (trajectory(WORK, DONE), 1, 1),
        (trajectory(WORK), 0, 1),
        (trajectory(DONE, DONE), 1, 1),
        (trajectory(DONE, todos=4), 1, 4),
        # What failed was not done: whether it was marked so says nothing.
        (trajectory(plan(2), DONE, solved=False), 0, 0),
    ],
)
def test_todos_that_are_marked_done(one: Trajectory, done: int, todos: int) -> None:
    assert (counted(one).done, counted(one).todos) == (done, todos)


@pytest.mark.parametrize(
    ("one", "allowed", "calls"),
    [
        (trajectory(WORK, plan(1), WORK, DONE, FINISH), 5, 5),
        # Finishing while todos are open, and a todo that is done twice.
        (trajectory(plan(2), DONE, FINISH), 2, 3),
        (trajectory(plan(1), DONE, DONE), 2, 3),
        (trajectory(plan(1), plan(1), DONE), 2, 3),
        # Nobody says in which phase it is.
        (trajectory(WORK, DONE, FINISH), 0, 0),
        (trajectory(WORK, DONE, FINISH, phase="tactical"), 2, 3),
        (trajectory(WORK, DONE, FINISH, phase="strategic"), 2, 3),
    ],
)
def test_calls_that_their_phase_allows(one: Trajectory, allowed: int, calls: int) -> None:
    assert (counted(one).allowed_calls, counted(one).phase_calls) == (allowed, calls)


def replace(old: str, new: str) -> dict[str, Any]:
    return call("str_replace", path="f", old_str=old, new_str=new)


def write(content: str) -> dict[str, Any]:
    return call("write_file", path="f", content=content)


FILE = "one two\nthree four\nfive six\n"
CHANGED = "one two\nthree 4\nfive six\n"


@pytest.mark.parametrize(
    ("one", "written", "needed"),
    [
        (trajectory(replace("three four", "three 4")), 4, 4),
        (trajectory(replace(FILE, CHANGED)), 12, 4),
        # A file that is written anew costs all of it, where a line would do; a new one is not compared.
        (trajectory(write(FILE)), 0, 0),
        (trajectory(write(FILE), write(CHANGED)), 6, 4),
        (trajectory(call("read_file", path="f"), write(CHANGED), results=[FILE, "ok"]), 6, 4),
        (trajectory(write(FILE), replace("three four", "three 4"), write(CHANGED)), 4 + 6, 4),
        (trajectory(call("read_file", path="g"), write(CHANGED), results=[FILE, "ok"]), 0, 0),
    ],
)
def test_tokens_that_edits_write_and_need(one: Trajectory, written: int, needed: int) -> None:
    assert (counted(one).written, counted(one).needed) == (written, needed)


def test_figures_are_over_all_and_by_rung() -> None:
    ones = [
        trajectory(plan(2), DONE, DONE, task="a", solved=True),
        trajectory(WORK, task="b", solved=False),
        trajectory(WORK, task="b"),
    ]
    figures, rungs = figures_of(ones, DisciplineRules())
    assert figures.todo_completion == pytest.approx(2 / 3)
    assert figures.phase_adherence == 1.0
    assert figures.success == 0.5
    assert figures.extra_tokens is None
    assert {rung.value: one.counts.trajectories for rung, one in rungs.items()} == {"single": 2, "sequential": 1}


def answered(task: str, words: int) -> Trajectory:
    return Trajectory(task=task, messages=[ASKED, said("assistant", "word " * words)])


def test_tokens_are_compared_by_task_over_those_that_both_have() -> None:
    # Two attempts of one task are one task, and `c` has nothing to be set beside.
    ours = [answered("a", 8), answered("a", 12), answered("b", 20), answered("c", 500)]
    baseline = [answered("a", 20), answered("b", 40), answered("d", 1)]
    assert token_change(ours, baseline) == pytest.approx(-0.5)
    assert token_change(ours, [answered("z", 1)]) is None
    assert figures_of(ours, DisciplineRules())[0].tokens_per_task == pytest.approx((10 + 20 + 500) / 3)


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main(["data", "metrics", *map(str, arguments)])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_rules_name_the_tools(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("done: [tick]\nnextPhase: [plan]\nfinish: [end]\nedits: {patch: {path: file, old: a, new: b}}\n")
    calls = [call("plan", items=["x", "y"]), call("tick"), call("patch", file="f", a="p\nq", b="p\nr"), call("end")]
    messages = [ASKED, *(message for one in calls for message in (called(one), said("tool", "ok")))]
    path = write_rows(tmp_path / "rows.jsonl", [conversation(*messages, success=True)])
    code, out, _ = run(capsys, path, "--rules", rules, "--json", "--check")
    told = json.loads(out)
    assert (told["todoCompletion"], told["phaseAdherence"], told["extraTokens"]) == (0.5, 0.75, 1.0)
    assert told["missed"] == ["todoCompletion", "extraTokens", "phaseAdherence"]
    assert code == EXIT_INVALID
    assert run(capsys, path, "--rules", rules)[0] == 0
    rules.write_text("dnoe: [tick]")
    code, _, error = run(capsys, path, "--rules", rules)
    assert (code, f"{rules}: dnoe: " in error) == (EXIT_INVALID, True)


def test_runs_and_rows_are_read_and_tokens_set_beside_a_baseline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], finished_run: Path
) -> None:
    told = json.loads(run(capsys, finished_run, "--json")[1])
    assert told["success"] == 0.5
    assert told["counts"]["trajectories"] == 2
    code, out, _ = run(capsys, finished_run, "--baseline", finished_run, "--check")
    assert code == EXIT_INVALID
    assert "tokens against baseline" in out
    assert "0.0% !" in out
    assert "50.0% !" in out


@pytest.mark.parametrize(
    ("more", "success"),
    [
        ({"success": True}, 1.0),
        ({"success": False, "reward": 1}, 0.0),
        ({"reward": 0.9}, 0.0),
        ({"reward": 1}, 1.0),
        ({}, None),
    ],
)
def test_rows_say_whether_they_succeeded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: dict[str, Any], success: float | None
) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [conversation(ASKED, said("assistant", "a"), **more)])
    assert json.loads(run(capsys, path, "--json")[1])["success"] == success


@pytest.mark.parametrize(
    ("more", "words"),
    [({"phase": "x"}, "phase is 'x'; use strategic or tactical"), ({"todos": 0}, "todos is 0; give how many")],
)
def test_a_wrong_row_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: dict[str, Any], words: str
) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [conversation(ASKED, said("assistant", "a"), **more)])
    code, _, error = run(capsys, path)
    assert (code, f"{path}, row 1: {words}" in error) == (EXIT_INVALID, True)
    pair = write_rows(tmp_path / "pairs.jsonl", [{"prompt": "q", "chosen": "a", "rejected": "b"}])
    assert "row 1: is a pair" in run(capsys, pair)[2]
    assert "there are no trajectories" in run(capsys, write_rows(tmp_path / "none.jsonl", []))[2]


def test_the_page_shows_the_rules_that_hold_without_a_file() -> None:
    page = (Path(__file__).parents[3] / "docs" / "discipline.md").read_text()
    block = page.split("as here:\n\n")[1].split("\n\n")[0]
    assert DisciplineRules.model_validate(yaml.safe_load(textwrap.dedent(block))) == DisciplineRules()
    assert all(f"| `{name}` |" in page for name in (*TARGETS, "tokensPerTask"))
