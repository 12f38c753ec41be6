"""Wrong data is refused with field, row and fix."""

import json
from pathlib import Path

import pytest
from whetstone_api.jobs import DatasetFile
from whetstone_api.vocabulary import Reason
from whetstone_trainer.dataset import read_rows
from whetstone_trainer.errors import UserError

FIELD = "spec.datasets[0].source.uri (pvc://data/train.jsonl)"
GOOD = json.dumps({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "task": "t"})


def dataset(path: Path) -> DatasetFile:
    return DatasetFile(name="train", path=str(path), field=FIELD)


def test_rows_are_read_with_their_line_numbers_and_tasks(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text(f"{GOOD}\n\n{GOOD}\n")
    rows = list(read_rows(dataset(path)))
    assert [row.number for row in rows] == [1, 3]
    assert rows[0].messages == [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    assert rows[0].task == "t"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{not json", "is not JSON"),
        ("\xff", "is not JSON"),
        ("[1]", "is not a JSON object"),
        ("{}", "needs exactly one of `messages`, `conversations`, and `prompt` with `completion` (it has none)"),
        ('{"messages": [], "prompt": "p"}', "(it has messages, prompt)"),
        ('{"messages": []}', "must be a list that is not empty"),
        ('{"conversations": []}', "`conversations` must be a list that is not empty"),
        ('{"prompt": "p"}', "has `prompt` without `completion`"),
        (
            '{"prompt": "p", "completion": [{"role": "assistant", "content": "a", "suboptimal": 1}]}',
            "completion[0].suboptimal is 1; it must be true or false",
        ),
        ('{"prompt": 1, "completion": "c"}', "`prompt` must be text, or a list of messages"),
        ('{"conversations": [{"from": "bot", "value": "q"}]}', "conversations[0].from is 'bot'; use one of human,"),
        ('{"messages": ["x"]}', "messages[0] is not an object"),
        ('{"messages": [{"role": "human", "content": "q"}]}', "messages[0].role is 'human'; use one of"),
        ('{"messages": [{"role": "user", "content": null}]}', "messages[0].content is NoneType; it must be a string"),
        ('{"messages": [{"role": "user", "content": "q"}]}', "has no assistant turn"),
        ('{"messages": [{"role": "assistant", "content": "a"}]}', "starts with the assistant"),
        (
            '{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": " "}]}',
            "messages[1].content of the assistant is blank",
        ),
        (
            '{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "", "tool_calls": [1]}]}',
            "messages[1].tool_calls[0] has no function name",
        ),
        (
            '{"messages": [{"role": "user", "content": "q", "tool_calls": [{"name": "f"}]}]}',
            "messages[0].tool_calls: only the assistant calls tools",
        ),
        (
            (
                '{"messages": [{"role": "user", "content": "q"},'
                ' {"role": "assistant", "content": null, "tool_calls": [{"name": "f", "arguments": "{"}]}]}'
            ),
            "messages[1].tool_calls[0]: arguments is text that is not JSON",
        ),
        (GOOD[:-1] + ', "tools": "["}', "`tools` is text that is not JSON"),
        (GOOD[:-1] + ', "tools": [1]}', "`tools` must be a list of function descriptions"),
    ],
)
def test_wrong_row_is_named(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "train.jsonl"
    path.write_bytes(f"{GOOD}\n{line}\n".encode("latin-1"))
    with pytest.raises(UserError) as caught:
        list(read_rows(dataset(path)))
    assert caught.value.reason == Reason.DATASET_INVALID
    assert caught.value.message.startswith(f"{FIELD}, row 2: ")
    assert words in caught.value.message


def test_empty_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text("\n\n")
    with pytest.raises(UserError, match="has no rows") as caught:
        list(read_rows(dataset(path)))
    assert caught.value.reason == Reason.DATASET_EMPTY


def test_missing_file_and_folder_are_refused(tmp_path: Path) -> None:
    for path, words in ((tmp_path / "absent.jsonl", "does not exist"), (tmp_path, "is a folder")):
        with pytest.raises(UserError, match=words) as caught:
            list(read_rows(dataset(path)))
        assert caught.value.reason == Reason.DATASET_NOT_FOUND
        assert FIELD in caught.value.message


@pytest.mark.parametrize("target", ["/etc/hostname", "../../other/rows.jsonl", "../within.jsonl"])
def test_link_that_leads_out_of_its_claim_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    monkeypatch.setattr("whetstone_trainer.dataset.CLAIMS_ROOT", str(tmp_path))
    (tmp_path / "other").mkdir()
    (tmp_path / "data" / "a").mkdir(parents=True)
    for place in ("other/rows.jsonl", "data/within.jsonl"):
        (tmp_path / place).write_text(GOOD)
    link = tmp_path / "data" / "a" / "train.jsonl"
    link.symlink_to(target)
    if target == "../within.jsonl":
        assert len(list(read_rows(dataset(link)))) == 1
        return
    with pytest.raises(UserError, match="leads out of its volume") as caught:
        list(read_rows(dataset(link)))
    assert caught.value.reason == Reason.DATASET_INVALID


CALL = {"type": "function", "function": {"name": "ls", "arguments": {"path": "/"}}}
QUESTION, ANSWER = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}


@pytest.mark.parametrize(
    ("row", "messages"),
    [
        ({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}, [QUESTION, ANSWER]),
        ({"conversations": [QUESTION, ANSWER]}, [QUESTION, ANSWER]),
        ({"prompt": "q", "completion": "a"}, [QUESTION, ANSWER]),
        ({"prompt": [QUESTION], "completion": [ANSWER]}, [QUESTION, ANSWER]),
        (
            {"messages": [QUESTION, {"role": "assistant", "content": None, "tool_calls": [CALL]}]},
            [QUESTION, {"role": "assistant", "content": "", "tool_calls": [CALL]}],
        ),
        (
            {
                "messages": [
                    QUESTION,
                    {
                        "role": "assistant",
                        "content": "I look.",
                        "tool_calls": [{"name": "ls", "arguments": '{"path": "/"}'}],
                    },
                    {"role": "tool", "content": "bin", "tool_call_id": "1"},
                    ANSWER,
                ]
            },
            [
                QUESTION,
                {"role": "assistant", "content": "I look.", "tool_calls": [CALL]},
                {"role": "tool", "content": "bin", "tool_call_id": "1"},
                ANSWER,
            ],
        ),
        (
            {
                "conversations": [
                    *[{"from": "human", "value": "q"}],
                    {"from": "gpt", "value": "a"},
                    {"from": "observation", "value": "o"},
                ]
            },
            [QUESTION, ANSWER, {"role": "tool", "content": "o"}],
        ),
    ],
    ids=["sharegpt", "conversations", "prompt", "prompt-messages", "null-content", "flat-call", "observation"],
)
def test_every_form_becomes_the_same_messages(tmp_path: Path, row: object, messages: object) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text(json.dumps(row))
    assert [one.messages for one in read_rows(dataset(path))] == [messages]


def test_tools_of_a_row_are_kept_also_as_text(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "ls"}}]
    path = tmp_path / "train.jsonl"
    rows = [{**json.loads(GOOD), "tools": value} for value in (tools, json.dumps(tools), [], None)]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert [one.tools for one in read_rows(dataset(path))] == [tools, tools, None, None]
