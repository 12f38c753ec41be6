"""`whetstone data validate`: each wrong row is named, with the rule and the fix; good data passes."""

import json
import tracemalloc
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.data_rows import LS, asked, call, called, conversation, said, write_rows
from tokenizers import Tokenizer, models, pre_tokenizers
from whetstone_artifacts.data.seen import seen_rows
from whetstone_artifacts.data.validation import DataCheck, Limits
from whetstone_cli.__main__ import main
from whetstone_cli.exits import EXIT_INVALID, EXIT_USAGE

ANSWER = said("assistant", "a")
GOOD = asked("Which files are there?")
LONG = "Please go through all of the files in the folder and tell me which one of them was changed last and by whom"


class Command:
    """The command, run in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def run(self, *arguments: object) -> tuple[int, str, str]:
        code = main(["data", "validate", *map(str, arguments)])
        told = self._capsys.readouterr()
        return code, told.out, told.err

    def found(self, *arguments: object) -> tuple[int, list[tuple[str, str, int | None]], dict[str, Any]]:
        code, out, _ = self.run("--json", *arguments)
        told = json.loads(out)
        # Advice about the amount is due to every small file of a test.
        kept = [one for one in told["findings"] if one["level"] != "advice"]
        return code, [(one["rule"], one["level"], one["row"]) for one in kept], told


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


def check(command: Command, tmp_path: Path, rows: Iterable[Mapping[str, Any] | str]) -> list[tuple[str, str, int]]:
    return command.found(write_rows(tmp_path / "rows.jsonl", rows))[1]  # type: ignore[return-value]


def test_good_rows_in_every_form_pass_and_are_counted(command: Command, tmp_path: Path) -> None:
    rows = [
        conversation(
            said("user", "Look into /tmp"),
            called(call(path="/tmp")),
            said("tool", "a"),
            said("assistant", "a"),
            tools=[LS],
        ),
        {"conversations": [{"from": "human", "value": "Who are you?"}, {"from": "gpt", "value": "Nobody."}]},
        {"prompt": "How much is 2 and 2?", "completion": "4"},
        {"prompt": "Is it day?", "chosen": "It is.", "rejected": "No."},
    ]
    code, found, told = command.found(write_rows(tmp_path / "rows.jsonl", rows))
    assert (code, found) == (0, [])
    (file,) = told["files"]
    assert (file["rows"], file["good"]) == (4, 4)
    assert file["forms"] == {"messages": 1, "conversations": 1, "prompt": 1, "pair": 1}
    assert file["toolCalls"] == {"none": 3, "single": 1}


def test_what_a_training_refuses_is_told_with_row_and_fix(command: Command, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [GOOD, "{not json", "", "[1]", conversation(said("human", "q")), GOOD])
    code, out, _ = command.run(path)
    assert code == EXIT_INVALID
    assert f"error: {path}, row 2: is not JSON" in out
    assert f"error: {path}, row 4: is not a JSON object" in out
    assert f"error: {path}, row 5: messages[0].role is 'human'; use one of" in out
    assert f"warning: {path}, row 6: is the same as row 1 of {path}" in out
    assert out.rstrip().endswith("3 errors, 1 warnings")


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([called(call(path=3))], "message 1, tool_calls[0].arguments.path: 3 is not of type 'string'"),
        ([called(call())], "message 1, tool_calls[0].arguments: 'path' is a required property"),
        ([called(call(path="/", all=True))], "message 1, tool_calls[0].arguments: Additional properties"),
        ([called(call("rm", path="/"))], "message 1, tool_calls[0] calls 'rm', which is not among its tools"),
        ([said("assistant", "a"), said("tool", "b")], "message 2 is the result of no call"),
        (
            [called(call(call_id="c1", path="/")), said("tool", "a", tool_call_id="c2")],
            "message 2.tool_call_id is 'c2', which no open call has",
        ),
        (
            [called(call(path="/"), call(path="/b")), said("tool", "a"), said("assistant", "a")],
            "message 3 comes before the results of 1 calls",
        ),
    ],
)
def test_calls_are_checked_against_the_tools_and_results(
    command: Command, tmp_path: Path, messages: list[dict[str, Any]], words: str
) -> None:
    row = conversation(said("user", "Look"), *messages, tools=[LS])
    code, out, _ = command.run(write_rows(tmp_path / "rows.jsonl", [row]))
    assert f"row 1: {words}" in out
    assert "[tool-calls]" in out
    assert code == EXIT_INVALID


def test_tools_that_are_no_schema_are_told(command: Command, tmp_path: Path) -> None:
    broken = {"function": {"name": "ls", "parameters": {"type": "thing"}}}
    rows = [
        conversation(said("user", "q"), said("assistant", "a"), tools=tools) for tools in ([broken], [{"name": ""}])
    ]
    code, out, _ = command.run(write_rows(tmp_path / "rows.jsonl", rows))
    assert code == EXIT_INVALID
    assert "row 1: tools[0].parameters is no JSON schema" in out
    assert "row 2: tools[0] has no name" in out


def test_calls_of_rows_without_tools_are_not_judged(command: Command, tmp_path: Path) -> None:
    row = conversation(said("user", "Look"), called(call("anything", path=3)))
    assert check(command, tmp_path, [row]) == []


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([said("user", "q"), said("system", "s"), said("assistant", "a")], "message 1 of `system` is not the first"),
        ([said("user", "q"), said("assistant", "a"), said("user", "r")], "ends with a message of `user`"),
        ([said("user", "q"), said("user", "r"), said("assistant", "a")], "message 1 is the second of `user` in a row"),
    ],
)
def test_roles_that_templates_stumble_over_are_warnings(
    command: Command, tmp_path: Path, messages: list[dict[str, Any]], words: str
) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [conversation(*messages)])
    code, out, _ = command.run(path)
    assert code == 0
    assert f"warning: {path}, row 1: {words}" in out
    assert command.run(path, "--strict")[0] == EXIT_INVALID


def test_the_same_row_in_another_form_is_a_duplicate(command: Command, tmp_path: Path) -> None:
    rows = [asked("q", "a"), {"prompt": "q", "completion": "a"}, asked("q", "b")]
    assert check(command, tmp_path, rows) == [("duplicate", "warning", 2)]


def test_rows_that_are_nearly_the_same_are_found_across_files(command: Command, tmp_path: Path) -> None:
    one = write_rows(tmp_path / "one.jsonl", [asked(LONG, "alpha"), asked("Something else entirely", "beta")])
    two = write_rows(tmp_path / "two.jsonl", [asked(LONG + ".", "alpha"), asked(LONG.upper() + "  ", "alpha")])
    assert command.found(one, two, "--alike", "0.8")[1] == [
        ("near-duplicate", "warning", 1),
        ("near-duplicate", "warning", 2),
    ]
    assert f"row 1 of {one}" in command.run(one, two, "--alike", "0.8")[1]
    assert command.found(one, two, "--no-near")[1] == []


def test_a_system_prompt_that_all_share_makes_no_rows_alike(command: Command, tmp_path: Path) -> None:
    shared = " ".join(f"Rule {number} is this." for number in range(200))
    rows = [conversation(said("system", shared), said("user", q), ANSWER) for q in ("one", "two")]
    assert check(command, tmp_path, rows) == []


def test_rows_that_give_away_held_out_ones_are_errors(command: Command, tmp_path: Path) -> None:
    held = write_rows(
        tmp_path / "test.jsonl",
        [asked("What is held out?", "This.", task="t1"), asked("Another one", "b", task="t2"), asked(LONG, "c")],
    )
    learned = write_rows(
        tmp_path / "train.jsonl",
        [
            asked("What is held out?", "This."),
            asked("what is  HELD out?", "Something else."),
            asked("A new question", "d", task="t2"),
            asked(LONG + "?", "c"),
            asked("Fine", "e", task="t3"),
        ],
    )
    code, found, told = command.found(learned, "--held-out", held, "--alike", "0.8")
    assert code == EXIT_INVALID
    assert found == [
        ("leakage", "error", 1),
        ("leakage", "error", 2),
        ("leakage", "error", 3),
        ("leakage", "warning", 4),
    ]
    assert "is of task 't2' as is row 2" in told["findings"][2]["message"]
    assert [file["heldOut"] for file in told["files"]] == [True, False]


def test_likeness_to_a_held_out_row_is_told_before_that_to_others(command: Command, tmp_path: Path) -> None:
    held = write_rows(tmp_path / "test.jsonl", [asked(f"{LONG} today", "alpha")])
    learned = write_rows(
        tmp_path / "train.jsonl", [asked(f"{LONG} of us here", "beta"), asked(f"{LONG} of us", "beta")]
    )
    arguments = (learned, "--held-out", held, "--alike", "0.82")
    # Row 1 is not that much like the held-out row; row 2 is like both, and more like row 1.
    assert command.found(*arguments)[1] == [("leakage", "warning", 2)]


def test_lengths_are_told_in_characters_and_with_a_tokenizer_in_tokens(command: Command, tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    path = write_rows(tmp_path / "rows.jsonl", [asked("one two three", "four"), asked("x", "y")])
    _, found, told = command.found(path, "--tokenizer", tmp_path, "--max-tokens", 3, "--max-characters", 17)
    assert told["files"][0]["tokens"] == {"median": 2, "p95": 4, "longest": 4, "total": 6}
    assert told["files"][0]["characters"]["longest"] == len("one two three\nfour") == 18
    assert found == [("length", "warning", 1), ("length", "warning", 1)]
    assert command.run(path, "--max-tokens", 3)[0] == EXIT_USAGE
    (tmp_path / "tokenizer.json").write_text("{}")
    assert command.run(path, "--tokenizer", tmp_path)[0] == EXIT_USAGE


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (asked("q", "a"), "to learn tone and form of answers, 200 or more"),
        (conversation(said("user", "q"), called(call(path="/"))), "to learn calls of tools, 500 or more"),
        (
            conversation(said("user", "q"), called(call()), said("tool", "r"), called(call())),
            "to learn work in several steps, 1000 or more",
        ),
    ],
)
def test_too_little_data_for_what_it_teaches_is_advised(
    command: Command, tmp_path: Path, row: dict[str, Any], words: str
) -> None:
    code, out, _ = command.run(write_rows(tmp_path / "rows.jsonl", [row]))
    assert code == 0
    assert words in out


def test_parquet_is_read_and_a_broken_one_is_told(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_pylist([GOOD, {**asked("r"), "task": "t"}]), path)
    assert command.found(path)[2]["files"][0]["good"] == 2
    path.write_bytes(b"PAR1")
    assert command.found(path)[1][0] == ("format", "error", 1)


def test_a_file_without_rows_is_an_error_and_a_missing_one_cannot_be_checked(command: Command, tmp_path: Path) -> None:
    empty = write_rows(tmp_path / "rows.jsonl", [])
    assert command.found(empty)[:2] == (EXIT_INVALID, [("amount", "error", None)])
    assert command.run(tmp_path / "absent.jsonl")[0] == EXIT_USAGE
    assert command.run(empty, empty)[0] == EXIT_USAGE
    assert command.run(empty, "--alike", "2")[0] == EXIT_USAGE


def test_only_so_many_findings_of_a_rule_are_told(command: Command, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", ["no"] * 5)
    out = command.run(path, "--show", 2)[1]
    assert out.count("is not JSON") == 2
    assert f"{path}: 3 more of format" in out
    assert "5 errors" in out


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    peaks = []
    for count in (200, 2000):
        rows = [asked(f"{number} " + "x" * 4000, str(number)) for number in range(count)]
        path = write_rows(tmp_path / f"{count}.jsonl", rows)
        with seen_rows() as seen:
            check = DataCheck(seen, Limits(alike=None))
            tracemalloc.start()
            assert [one for one in check.check(path) if one.level != "advice"] == []
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert peaks[1] - peaks[0] < 200_000
