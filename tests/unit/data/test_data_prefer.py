"""`whetstone data prefer`: good and bad answers to one question become pairs that a training reads."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.data_rows import LS, asked, call, called, conversation, said, write_rows
from whetstone_api.training_preference import Granularity
from whetstone_artifacts.data.pairs import Pair, to_pair
from whetstone_cli.__main__ import main
from whetstone_cli.exits import EXIT_INVALID

USER = said("user", "Look")


def prefer(out: Path, *arguments: object) -> list[Pair]:
    assert main(["data", "prefer", *map(str, arguments), "-o", str(out)]) == 0
    return [to_pair(json.loads(line), Granularity.TRAJECTORY) for line in out.read_text().splitlines()]


def sides(pairs: list[Pair]) -> list[tuple[Any, Any]]:
    return [(pair.chosen[0]["content"], pair.rejected[0]["content"]) for pair in pairs]


def test_labels_make_pairs_of_the_same_question(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        asked("q", "bad 1", label="rejected"),
        asked("q", "good 1", label="accepted", task="t"),
        asked("r", "good r", label="accepted"),
        asked("q", "good 2", label="accepted"),
        asked("q", "bad 2", label="rejected"),
        asked("q", "bad 3", label="rejected"),
        asked("s", "same", label="accepted"),
        asked("s", "same", label="rejected"),
        asked("q", "nobody looked"),
        # With tools it is another question.
        asked("u", "good u", label="accepted", tools=[LS]),
        asked("u", "bad u", label="rejected"),
    ]
    path = write_rows(tmp_path / "rows.jsonl", rows)
    assert sides(prefer(tmp_path / "out.jsonl", path)) == [("good 1", "bad 1"), ("good 2", "bad 2")]
    assert json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])["task"] == "t"
    told = capsys.readouterr()
    assert told.out == f"{tmp_path / 'out.jsonl'}: 2 pairs\n"
    assert told.err.splitlines() == [
        "left out: 1 rows not judged",
        "left out: 4 rows without a row to prefer or to be preferred to",
        "left out: 1 pairs whose sides do not differ in an answer",
    ]


def test_a_pair_begins_with_the_answer_at_which_they_part(tmp_path: Path) -> None:
    begin = [USER, called(call(path="/")), said("tool", "a")]
    good, bad = ([*begin, called(call(path=path)), said("tool", path), said("assistant", "x")] for path in ("/a", "/b"))
    rows = [
        conversation(*good, tools=[LS], label="accepted"),
        conversation(*bad, tools=[LS], label="rejected"),
        conversation(*begin, said("assistant", "other tools"), label="rejected"),
    ]
    (pair,) = prefer(tmp_path / "out.jsonl", write_rows(tmp_path / "rows.jsonl", rows))
    assert len(pair.prompt) == 3
    assert pair.chosen[0]["tool_calls"][0]["function"]["arguments"] == {"path": "/a"}
    assert pair.rejected[0]["tool_calls"][0]["function"]["arguments"] == {"path": "/b"}


def test_verdicts_of_a_review_come_before_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [asked("q", "a", label="accepted"), asked("q", "b")])
    told = [{"file": str(path), "row": row, "verdict": one} for row, one in ((1, "rejected"), (2, "accepted"))]
    verdicts = write_rows(tmp_path / "verdicts.jsonl", told)
    assert sides(prefer(tmp_path / "out.jsonl", path, "--verdicts", verdicts)) == [("b", "a")]
    for line, words in (({**told[0], "file": "x"}, "row 1: is about x"), ({"row": 1}, "row 1: is no verdict")):
        arguments = [str(path), "--verdicts", str(write_rows(verdicts, [line])), "-o", str(tmp_path / "no.jsonl")]
        assert main(["data", "prefer", *arguments]) == EXIT_INVALID
        assert f"{verdicts}, {words}" in capsys.readouterr().err


def test_without_a_pair_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [asked("q", "a", label="accepted"), asked("r", "b", label="rejected")])
    assert main(["data", "prefer", str(path), "-o", str(tmp_path / "out.jsonl")]) == EXIT_INVALID
    assert "no question has an accepted and a rejected answer" in capsys.readouterr().err
    assert not (tmp_path / "out.jsonl").exists()
