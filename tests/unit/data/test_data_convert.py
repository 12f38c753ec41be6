"""`whetstone data convert`: written in any form and read again, rows say the same."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.data_rows import LS, asked, call, called, conversation, said, write_rows
from whetstone_artifacts.data.conversion import Form, convert
from whetstone_artifacts.data.example import read_example
from whetstone_cli.__main__ import main
from whetstone_cli.exits import EXIT_INVALID

TOOLED = [
    said("system", "Be brief."),
    said("user", "Look"),
    called(call(call_id="c1", path="/ä", depth=2), content="I look."),
    said("tool", "a", tool_call_id="c1"),
    said("assistant", "wrong", suboptimal=True),
    said("user", "Sure?"),
    said("assistant", "a"),
]
ROWS = [
    asked("q", "a"),
    conversation(*TOOLED, tools=[LS], task="t1", reward=0.5),
    {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a", "weight": 0}]},
    {"prompt": "q", "completion": [called(call(path="/")), said("tool", "x"), said("assistant", "y")]},
    {"prompt": TOOLED[:2], "chosen": TOOLED[2:], "rejected": "no", "tools": [LS], "reward": 1},
    {"chosen": [said("user", "q"), said("assistant", "a")], "rejected": [said("user", "q"), said("assistant", "b")]},
]


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize("row", ROWS)
def test_a_converted_row_says_the_same(row: dict[str, Any], form: Form) -> None:
    example = read_example(row)
    written = json.loads(json.dumps(convert(row, example, form)))
    again = read_example(written)
    assert (again.messages, again.rejected, again.tools) == (example.messages, example.rejected, example.tools)
    assert again.task == example.task
    assert written.get("reward") == row.get("reward")
    key = {Form.OPENAI: "messages", Form.SHAREGPT: "conversations", Form.PROMPT: "prompt"}[form]
    assert key in written


def test_each_form_is_as_its_readers_want_it() -> None:
    row = conversation(*TOOLED)
    example = read_example(row)
    openai = convert(row, example, Form.OPENAI)["messages"]
    assert json.loads(openai[2]["tool_calls"][0]["function"]["arguments"]) == {"path": "/ä", "depth": 2}
    assert openai[4] == {"role": "assistant", "content": "wrong", "weight": 0}
    sharegpt = convert(row, example, Form.SHAREGPT)["conversations"]
    assert [one["from"] for one in sharegpt] == ["system", "human", "gpt", "tool", "gpt", "human", "gpt"]
    assert convert(asked("q", "a"), read_example(asked("q", "a")), Form.PROMPT) == {"prompt": "q", "completion": "a"}
    parts = convert(row, example, Form.PROMPT)
    assert (len(parts["prompt"]), len(parts["completion"])) == (2, 5)


def test_the_command_reads_parquet_and_overwrites_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.Table.from_pylist([asked("q", "a"), asked("r", "b")]), tmp_path / "rows.parquet")
    lines = write_rows(tmp_path / "rows.jsonl", [asked("s", "c")])
    arguments = ["data", "convert", str(tmp_path / "rows.parquet"), str(lines), "--to", "prompt", "-o"]
    assert main([*arguments, str(tmp_path / "out.jsonl")]) == 0
    assert [json.loads(line)["prompt"] for line in (tmp_path / "out.jsonl").read_text().splitlines()] == ["q", "r", "s"]
    assert capsys.readouterr().out == f"{tmp_path / 'out.jsonl'}: 3 rows\n"
    assert main([*arguments, str(lines)]) == EXIT_INVALID
    assert json.loads(lines.read_text()) == asked("s", "c")
