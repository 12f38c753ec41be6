"""`whetstone data split`: by task, the same every time, and stable when rows are added."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.data_rows import asked, write_rows
from whetstone_artifacts.data.example import read_example
from whetstone_artifacts.data.splitting import split_of
from whetstone_cli.__main__ import main
from whetstone_cli.exits import EXIT_INVALID, EXIT_USAGE

SPLITS = ("train", "validation", "test")


def split(*arguments: object) -> int:
    return main(["data", "split", *map(str, arguments)])


def tasks(folder: Path, name: str) -> list[str]:
    return [json.loads(line)["task"] for line in (folder / f"{name}.jsonl").read_text().splitlines()]


def rows(count: int, attempts: int = 2) -> list[dict[str, Any]]:
    return [asked(f"q{n} {a}", str(a), task=f"t{n}") for n in range(count) for a in range(attempts)]


def test_every_row_is_in_one_split_and_no_task_in_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_rows(tmp_path / "all.jsonl", rows(60))
    assert split(path, "-o", tmp_path / "out", "--test", "0.2", "--validation", "0.2") == 0
    found = {name: tasks(tmp_path / "out", name) for name in SPLITS}
    assert sorted(task for names in found.values() for task in names) == sorted(
        f"t{n}" for n in range(60) for _ in "ab"
    )
    kinds = [set(names) for names in found.values()]
    assert all(not one & other for one in kinds for other in kinds if one is not other)
    told = capsys.readouterr().out
    assert f"{tmp_path / 'out' / 'test'}.jsonl: {len(found['test'])} rows of {len(set(found['test']))} tasks" in told


def test_a_task_stays_in_its_split_when_rows_are_added(tmp_path: Path) -> None:
    few, many = (write_rows(tmp_path / f"{count}.jsonl", rows(count)) for count in (40, 80))
    for path, name in ((few, "few"), (many, "many")):
        assert split(path, "-o", tmp_path / name, "--test", "0.3") == 0
    for name in ("train", "test"):
        assert set(tasks(tmp_path / "few", name)) <= set(tasks(tmp_path / "many", name))


def test_shares_are_kept_on_average_and_another_seed_divides_otherwise() -> None:
    examples = [read_example(asked("q", task=f"t{n}")) for n in range(2000)]
    shares = {"test": 0.1, "validation": 0.25}
    found = [split_of(one, shares, 0) for one in examples]
    assert found.count("test") == pytest.approx(200, abs=50)
    assert found.count("validation") == pytest.approx(500, abs=80)
    assert found != [split_of(one, shares, 1) for one in examples]


def test_rows_without_a_task_go_by_their_question() -> None:
    same = [read_example(asked(question, answer)) for question, answer in (("Who is it?", "a"), ("who  is it?", "b"))]
    assert all(len({split_of(one, {"test": 0.5}, seed) for one in same}) == 1 for seed in range(20))


def test_a_wrong_row_leaves_nothing_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_rows(tmp_path / "all.jsonl", [*rows(30), {"messages": []}])
    assert split(path, "-o", tmp_path / "out") == EXIT_INVALID
    assert f"{path}, row 61: `messages` must be a list that is not empty" in capsys.readouterr().err
    assert list((tmp_path / "out").glob("*.jsonl")) == []


def test_an_empty_split_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_rows(tmp_path / "all.jsonl", rows(1))
    assert split(path, "-o", tmp_path / "out") == EXIT_INVALID
    assert "no task falls into t" in capsys.readouterr().err
    assert not (tmp_path / "out" / "train.jsonl").exists()


def test_what_is_there_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_rows(tmp_path / "all.jsonl", rows(60))
    write_rows(tmp_path / "test.jsonl", ["mine"])
    assert split(path, "-o", tmp_path) == EXIT_INVALID
    assert "test.jsonl exists" in capsys.readouterr().err
    assert (tmp_path / "test.jsonl").read_text() == "mine\n"
    assert not (tmp_path / "train.jsonl").exists()
    assert split(path, "-o", tmp_path / "out", "--test", "0.6", "--validation", "0.4") == EXIT_USAGE
    assert split(tmp_path / "absent.jsonl", "-o", tmp_path / "out") == EXIT_USAGE
