"""Rows from a teacher. The teacher is a stand-in: a real HTTP server that answers by rule."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.data_rows import LS, asked, call, called, conversation, said, write_rows
from support.stand_in_teacher import StandInTeacher, teaching
from support.waiting import eventually
from whetstone_artifacts.data.expansion.teacher import NoReplyError, Teacher, TeacherRefusedError
from whetstone_cli.__main__ import main
from whetstone_cli.exits import EXIT_INVALID, EXIT_USAGE

SEEDS = [asked(f"How far is it from town {name} to the sea in the north?", "Ten miles.") for name in "abc"]
TOOL_SEED = conversation(
    said("system", "Use tools."),
    said("user", "What is in /tmp?"),
    called(call(path="/tmp")),
    said("tool", "a"),
    said("assistant", "a"),
    tools=[LS],
    task="listing",
)


def kind_of(text: str) -> str:
    for start, kind in (
        ("Below are requests", "question"),
        ("Rewrite this request", "evolve"),
        ("Write how an excellent", "answer"),
    ):
        if start in text:
            return kind
    return "critique" if "Criticise" in text else "revision" if "Mend the answer" in text else "answer"


class Mind:
    """Makes a new question each time, in the order in which it is asked, and answers all."""

    def __init__(self, **replies: str) -> None:
        self.replies = replies
        self.made = 0
        self.lock = threading.Lock()

    def __call__(self, text: str) -> str:
        kind = kind_of(text)
        if kind in self.replies:
            return self.replies[kind]
        with self.lock:
            self.made += 1
            number = self.made
        if kind == "question":
            return json.dumps({"question": f"new {number}: " + " ".join(f"w{number}x{word}" for word in range(9))})
        if kind == "evolve":
            before = re.search(r"<request>\n(.*?)\n</request>", text, re.DOTALL)
            assert before is not None
            return f"```json\n{json.dumps({'question': before[1] + ' deeper'})}\n```"
        return f"It is {number}."


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def arguments(tmp_path: Path, teacher: StandInTeacher, seeds: Sequence[Any] = SEEDS, *more: object) -> list[str]:
    place = tmp_path / "seeds.jsonl"
    if not place.exists():
        write_rows(place, seeds)
    given = ["data", "expand", place, "-o", tmp_path / "out", "--url", teacher.url, "--model", "m", "--tries", 2, *more]
    return [str(one) for one in given]


def test_rows_come_of_seeds_with_every_request_and_cost_on_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHETSTONE_TEACHER_KEY", "secret")
    prices = ("--input-price", 1000, "--output-price", 2000)
    with teaching(Mind()) as teacher:
        code = main(arguments(tmp_path, teacher, SEEDS, "-n", 2, "--evolve", 1, *prices))
        told = capsys.readouterr()
        assert code == 0
        made, log = rows(tmp_path / "out" / "rows.jsonl"), rows(tmp_path / "out" / "log.jsonl")
        assert (len(made), len(log), sum(teacher.asked.values())) == (6, 18, 18)
        assert teacher.keys == {"Bearer secret"}
    assert all(one["messages"][0]["content"].endswith(" deeper") for one in made)
    assert [one["role"] for one in made[0]["messages"]] == ["user", "assistant"]
    assert made[0]["expanded"] | {"variant": ""} == {
        "variant": "",
        "seed": f"{tmp_path / 'seeds.jsonl'}, row 1",
        "evolved": 1,
        "critiques": 0,
        "revisions": 0,
    }
    assert len({one["task"] for one in made}) == 3
    assert {one["step"] for one in log} == {"question", "evolve-1", "answer"}
    assert log[0]["request"]["messages"][0]["content"].startswith("Below are requests")
    assert {one["cost"] for one in log} == {"0.02"}
    assert "18 requests, 270 tokens, cost 0.36" in told.out
    assert "6 of 6 variants, 6 rows, 0 dropped, 270 tokens, cost 0.36" in told.err
    assert "secret" not in (tmp_path / "out" / "log.jsonl").read_text()
    check = ("validate", tmp_path / "out" / "rows.jsonl", "--held-out", tmp_path / "seeds.jsonl")
    assert main(["data", *map(str, check)]) == 0


def test_what_was_answered_is_not_asked_again_and_comes_out_the_same(tmp_path: Path) -> None:
    with teaching(Mind()) as teacher:
        assert main(arguments(tmp_path, teacher, SEEDS, "-n", 2, "--reflect", 1)) == 0
        first, asked_before = (tmp_path / "out" / "rows.jsonl").read_text(), sum(teacher.asked.values())
        assert main(arguments(tmp_path, teacher, SEEDS, "-n", 2, "--reflect", 1, "--at-once", 1)) == 0
        assert (tmp_path / "out" / "rows.jsonl").read_text() == first
        assert sum(teacher.asked.values()) == asked_before
        assert main(arguments(tmp_path, teacher, SEEDS, "-n", 3, "--reflect", 1)) == 0
        assert set(teacher.asked.values()) == {1}
        assert len(rows(tmp_path / "out" / "rows.jsonl")) == 9


def test_after_a_kill_only_what_was_under_way_is_asked_again(tmp_path: Path) -> None:
    hold = threading.Event()
    with teaching(Mind(), hold=hold, free=7) as teacher:
        given = arguments(tmp_path, teacher, SEEDS, "-n", 4, "--at-once", 3)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        process = subprocess.Popen([sys.executable, "-m", "whetstone_cli", *given], env=environment)
        log = tmp_path / "out" / "log.jsonl"
        eventually(
            lambda: sum(teacher.asked.values()) > 7 and log.read_bytes().count(b"\n") == 7,
            what="seven replies on record and a request under way",
        )
        process.send_signal(signal.SIGKILL)
        process.wait()
        open_requests = {text for text in teacher.asked if not teacher.answered[text]}
        with log.open("ab") as stream:
            stream.write(b'{"key": "half a li')
        hold.set()
        assert main(given) == 0
        again = {text for text, count in teacher.asked.items() if count > 1}
        assert again == open_requests
        assert 0 < len(again) <= 3
    assert len(rows(tmp_path / "out" / "rows.jsonl")) == 12
    assert len(rows(log)) == 36


def test_busy_and_failing_teachers_are_asked_again(tmp_path: Path) -> None:
    with teaching(Mind(), faults=[429, 500, "<html>busy</html>"]) as teacher:
        assert main(arguments(tmp_path, teacher, SEEDS, "-n", 1, "--at-once", 1, "--tries", 4)) == 0
        assert len(rows(tmp_path / "out" / "rows.jsonl")) == 3
        assert sum(teacher.asked.values()) == 9 + 3


def test_a_teacher_asks_for_time_and_gets_it(tmp_path: Path) -> None:
    body = {"messages": [{"role": "user", "content": "q"}]}
    pauses: list[float] = []
    with teaching(Mind(), faults=[503, 503, 400, 401]) as teacher, Teacher(teacher.url, pause=pauses.append) as ours:
        with pytest.raises(NoReplyError, match=r"HTTP 400: .*not now"):
            ours.ask(body)
        assert pauses == [1.0, 2.0]
        with pytest.raises(TeacherRefusedError, match="HTTP 401"):
            ours.ask(body)
        assert ours.ask(body).text == "It is 1."


@pytest.mark.parametrize(
    ("faults", "words", "most"),
    [([401] * 99, "refuses: HTTP 401", 4), ([500] * 99, "did not answer for 8 variants in a row: HTTP 500", 24)],
)
def test_a_teacher_that_is_away_ends_it_and_it_goes_on_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], faults: list[int | str], words: str, most: int
) -> None:
    with teaching(Mind(), faults=list(faults)) as teacher:
        assert main(arguments(tmp_path, teacher, SEEDS, "-n", 9, "--tries", 1)) == EXIT_INVALID
        assert words in capsys.readouterr().err
        assert sum(teacher.asked.values()) <= most
        teacher.faults.clear()
        assert main(arguments(tmp_path, teacher, SEEDS, "-n", 1)) == 0
        assert len(rows(tmp_path / "out" / "rows.jsonl")) == 3


@pytest.mark.parametrize(
    ("replies", "seed", "rule", "words"),
    [
        ({"question": "Sure, here it is"}, SEEDS[0], "question", "holds no question"),
        ({"question": '{"question": 7}'}, SEEDS[0], "question", "holds no question"),
        ({"question": '{"question": "\\ud800"}', "answer": " "}, SEEDS[0], "answer", "no answer"),
        (
            {"question": json.dumps({"question": SEEDS[0]["messages"][0]["content"].upper()})},
            SEEDS[0],
            "duplicate",
            "seed",
        ),
        ({"question": '{"question": "what is held out"}'}, SEEDS[0], "leakage", "held-out row 1"),
        ({"answer": "no JSON"}, TOOL_SEED, "answer", "is no answer"),
        ({"answer": '{"messages": [7]}'}, TOOL_SEED, "answer", "messages[2] is not an object"),
        ({"answer": json.dumps({"messages": [called(call("rm"))]})}, TOOL_SEED, "answer", "calls 'rm', which is not"),
        ({"answer": json.dumps({"messages": [called(call(depth=1))]})}, TOOL_SEED, "answer", "'path' is a required"),
        ({"answer": json.dumps({"messages": [called(call(path="/")), said("tool", "a")]})}, TOOL_SEED, "answer", "end"),
        (
            {"answer": json.dumps({"messages": [said("user", "q"), said("assistant", "a")]})},
            TOOL_SEED,
            "answer",
            "begin",
        ),
        ({"answer": "long " * 99}, SEEDS[0], "answer", "more than 300"),
    ],
)
def test_nonsense_becomes_no_row_and_the_reason_is_kept(
    tmp_path: Path, replies: dict[str, str], seed: dict[str, Any], rule: str, words: str
) -> None:
    held_out = write_rows(tmp_path / "held.jsonl", [asked("What is held out")])
    with teaching(Mind(**replies)) as teacher:
        more = ("-n", 1, "--evolve", 0, "--held-out", held_out, "--max-characters", 300)
        assert main(arguments(tmp_path, teacher, [seed], *more)) == EXIT_INVALID
    (dropped,) = rows(tmp_path / "out" / "dropped.jsonl")
    assert (dropped["rule"], words in dropped["message"]) == (rule, True), dropped
    assert rows(tmp_path / "out" / "rows.jsonl") == []


def test_half_a_character_in_a_reply_spoils_neither_row_nor_log(tmp_path: Path) -> None:
    with teaching(Mind(answer="half \ud800 of one")) as teacher:
        for _ in range(2):
            assert main(arguments(tmp_path, teacher, SEEDS[:1], "-n", 1, "--reflect", 1)) == 0
        assert set(teacher.asked.values()) == {1}
    assert rows(tmp_path / "out" / "log.jsonl")[2]["reply"] == "half ? of one"


def test_a_question_is_made_once(tmp_path: Path) -> None:
    with teaching(Mind(question='{"question": "the same one"}')) as teacher:
        assert main(arguments(tmp_path, teacher, SEEDS, "-n", 2, "--evolve", 0)) == 0
    assert len(rows(tmp_path / "out" / "rows.jsonl")) == 1
    assert {one["message"] for one in rows(tmp_path / "out" / "dropped.jsonl")} == {"asks what variant 1 asks"}


def test_nearly_the_same_question_is_not_new_unless_that_is_asked_for(tmp_path: Path) -> None:
    nearly = " ".join(f"word{number}" for number in range(60))
    seeds = [asked(nearly)]
    with teaching(Mind(question=json.dumps({"question": f"{nearly} more"}))) as teacher:
        assert main(arguments(tmp_path, teacher, seeds, "-n", 1, "--evolve", 0)) == EXIT_INVALID
        assert rows(tmp_path / "out" / "dropped.jsonl")[0]["rule"] == "duplicate"
        assert main(arguments(tmp_path, teacher, seeds, "-n", 1, "--evolve", 0, "--no-near")) == 0


def test_calls_of_tools_are_made_in_the_form_of_the_seed(tmp_path: Path) -> None:
    answer = {"messages": [called(call(path="/x")), said("tool", "b"), said("assistant", "b")]}
    with teaching(Mind(answer=json.dumps(answer))) as teacher:
        assert main(arguments(tmp_path, teacher, [TOOL_SEED], "-n", 1)) == 0
    (made,) = rows(tmp_path / "out" / "rows.jsonl")
    assert [one["role"] for one in made["messages"]] == ["system", "user", "assistant", "tool", "assistant"]
    assert (made["tools"], made["task"], made["tags"]) == ([LS], "listing", ["single"])


def test_a_reply_that_is_cut_off_is_none(tmp_path: Path) -> None:
    with teaching(Mind(), finish="length") as teacher:
        assert main(arguments(tmp_path, teacher, SEEDS, "-n", 1)) == EXIT_INVALID
    assert {one["rule"] for one in rows(tmp_path / "out" / "dropped.jsonl")} == {"question"}


GOOD = json.dumps({"messages": [said("assistant", "mended")]})
BAD = json.dumps({"messages": [called(call("rm")), said("tool", "x"), said("assistant", "bad")]})


@pytest.mark.parametrize(
    ("replies", "kept", "critiques", "revisions"),
    [
        ({"answer": GOOD.replace("mended", "first"), "critique": "too short", "revision": GOOD}, "mended", 2, 2),
        # A mended answer that the validators find more in does not take the place of a better one.
        ({"answer": GOOD.replace("mended", "first"), "critique": "too short", "revision": BAD}, "first", 2, 0),
        ({"answer": GOOD.replace("mended", "first"), "critique": "too short", "revision": "?"}, "first", 2, 0),
        ({"answer": GOOD.replace("mended", "first"), "critique": "no faults.", "revision": GOOD}, "first", 1, 0),
        ({"answer": BAD, "critique": "wrong tool", "revision": GOOD}, "mended", 2, 2),
    ],
)
def test_reflection_keeps_the_version_that_the_validators_find_less_in(
    tmp_path: Path, replies: dict[str, str], kept: str, critiques: int, revisions: int
) -> None:
    with teaching(Mind(**replies)) as teacher:
        assert main(arguments(tmp_path, teacher, [TOOL_SEED], "-n", 1, "--reflect", 2)) == 0
    (made,) = rows(tmp_path / "out" / "rows.jsonl")
    assert made["messages"][-1]["content"] == kept
    assert (made["expanded"]["critiques"], made["expanded"]["revisions"]) == (critiques, revisions)
    texts = [one["reply"] for one in rows(tmp_path / "out" / "log.jsonl")]
    assert replies["answer"] in texts
    assert (replies["revision"] in texts) is (critiques == 2)


def test_the_budget_is_never_gone_beyond_and_a_larger_one_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ("-n", 3, "--evolve", 0, "--reply-tokens", 5, "--input-price", 1, "--output-price", 1)
    with teaching(Mind(), usage=False) as teacher:
        assert main(arguments(tmp_path, teacher, SEEDS, *more, "--max-tokens", 3000)) == 0
        told = capsys.readouterr()
        assert "stopped: the budget is used up; raise it and run again" in told.err
        log = rows(tmp_path / "out" / "log.jsonl")
        assert 1500 < sum(one["promptTokens"] + one["replyTokens"] for one in log) <= 3000
        assert not any(one["measured"] for one in log)
        assert main(arguments(tmp_path, teacher, SEEDS, *more, "--max-cost", "0.004")) == 0
        assert "used up" in capsys.readouterr().err
        assert main(arguments(tmp_path, teacher, SEEDS, *more, "--max-cost", 1)) == 0
        assert set(teacher.asked.values()) == {1}
        assert len(rows(tmp_path / "out" / "rows.jsonl")) == 9


def test_a_dry_run_says_what_it_would_cost_at_most_and_asks_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ("-n", 2, "--evolve", 2, "--reflect", 1, "--input-price", 1, "--output-price", 10)
    with teaching(Mind()) as teacher:
        assert main(arguments(tmp_path, teacher, SEEDS, *more, "--max-cost", 5, "--dry-run")) == 0
        told = capsys.readouterr().out
        assert (teacher.asked, (tmp_path / "out").exists()) == ({}, False)
        counts = {step: int(count) for count, step in re.findall(r"(\d+) requests of step (\S+)", told)}
        assert counts == {"question": 6, "evolve": 12, "answer": 6, "critique": 6, "revision": 6}
        assert re.search(rf"{36 * 1024} reply tokens", told)
        assert "Below are requests" in told
        assert "stops before 5 cost" in told
        assert main(arguments(tmp_path, teacher, SEEDS, *more)) == 0
        spent = rows(tmp_path / "out" / "log.jsonl")
        most = float(re.search(r"([\d.]+) cost\n", told)[1])  # type: ignore[index]
        assert len(spent) == 36
        assert sum(float(one["cost"]) for one in spent) < most


def test_options_go_with_each_request(tmp_path: Path) -> None:
    with teaching(Mind()) as teacher:
        options = ("--option", "max_tokens=null", "--option", "max_completion_tokens=7", "--temperature", 0)
        assert main(arguments(tmp_path, teacher, SEEDS[:1], "-n", 1, "--seed", 5, *options)) == 0
    bodies = [one["request"] for one in rows(tmp_path / "out" / "log.jsonl")]
    assert all((one["max_completion_tokens"], one["seed"], one["temperature"]) == (7, 6, 0.0) for one in bodies)
    assert not any("max_tokens" in one for one in bodies)


def test_another_folder_is_not_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("x")
    with teaching(Mind()) as teacher:
        assert main(arguments(tmp_path, teacher)) == EXIT_INVALID
        assert "holds something else" in capsys.readouterr().err
        (tmp_path / "out" / "log.jsonl").write_text('{"question": "mine"}\n')
        assert main(arguments(tmp_path, teacher)) == EXIT_INVALID
        assert "log.jsonl, line 1, is none of an expansion's" in capsys.readouterr().err
        assert not teacher.asked


def test_what_cannot_be_run_so_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with teaching(Mind()) as teacher:
        assert main(arguments(tmp_path, teacher, SEEDS, "--max-cost", 1)) == EXIT_INVALID
        assert "--max-cost needs --input-price and --output-price" in capsys.readouterr().err
        for wrong in (("-n", 0), ("--evolve", -1), ("--input-price", "x"), ("--input-price", "nan"), ("--option", "a")):
            with pytest.raises(SystemExit) as ended:
                main(arguments(tmp_path, teacher, SEEDS, *wrong))
            assert ended.value.code == EXIT_USAGE
        none = write_rows(tmp_path / "none.jsonl", [])
        assert main(["data", "expand", str(none), "-o", "x", "--url", teacher.url, "--model", "m"]) == EXIT_INVALID
        assert "there is no row to start from" in capsys.readouterr().err
