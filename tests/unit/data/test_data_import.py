"""`whetstone data import`: each source becomes rows that a training reads; what cannot is named."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.data_rows import LS, call, called, said, write_rows
from whetstone_artifacts.data.example import read_example
from whetstone_artifacts.data.imports.audit_trail import plain
from whetstone_artifacts.data.imports.git_edits import edits_of
from whetstone_artifacts.data.tool_calls import call_problems
from whetstone_cli.__main__ import main
from whetstone_cli.exits import EXIT_INVALID

USER, ANSWER = said("user", "Look"), said("assistant", "a")


def run(source: str, out: Path, *arguments: object) -> list[dict[str, Any]]:
    assert main(["data", "import", source, *map(str, arguments), "-o", str(out)]) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    for row in rows:
        example = read_example(row)
        assert list(call_problems(example.messages, example.tools)) == []
    return rows


def log(*messages: dict[str, Any], answer: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"request": {"messages": list(messages), **more}, "response": {"choices": [{"message": answer}]}}


def test_a_chat_that_was_logged_turn_by_turn_is_one_row(tmp_path: Path) -> None:
    text = {"function": {"name": "ls", "arguments": '{"path": "/"}'}, "id": "c1", "type": "function"}
    calling = {"role": "assistant", "content": None, "refusal": None, "tool_calls": [text]}
    logs = [
        log(USER, answer=calling, tools=[LS]),
        log(USER, calling, said("tool", "a", tool_call_id="c1"), answer=ANSWER, tools=[LS], model="m"),
        log(USER, answer=ANSWER),
        log(USER, answer=ANSWER),
        {
            "custom_id": "1",
            "body": {"messages": [said("user", "b")]},
            "response": {"body": {"choices": [{"message": ANSWER}]}},
        },
        {"messages": [said("user", [{"type": "text", "text": "c"}])], "choices": [{"message": ANSWER}]},
    ]
    rows = run("openai", tmp_path / "out.jsonl", write_rows(tmp_path / "log.jsonl", logs))
    assert [len(row["messages"]) for row in rows] == [4, 2, 2, 2]
    assert rows[0]["tools"] == [LS]
    assert rows[3]["messages"][0]["content"] == "c"


def test_what_is_no_chat_is_named_and_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = said("user", [{"type": "image_url", "image_url": {"url": "x"}}])
    bad = [log(image, answer=ANSWER), log(USER, answer={}), "no"]
    path = write_rows(tmp_path / "log.jsonl", [*bad, log(USER, answer=ANSWER)])
    assert len(run("openai", tmp_path / "out.jsonl", path)) == 1
    told = capsys.readouterr()
    assert told.out.endswith("1 rows; 3 left out\n")
    assert f"{path}, row 1: messages[0].content is list" in told.err
    assert f"{path}, row 2: has no assistant turn" in told.err
    only_bad = write_rows(tmp_path / "bad.jsonl", bad)
    assert main(["data", "import", "openai", str(only_bad), "-o", str(tmp_path / "none.jsonl")]) == EXIT_INVALID
    assert not (tmp_path / "none.jsonl").exists()


def document(job: str, second: int, role: str | None, content: Any = "", **more: Any) -> dict[str, Any]:
    told = {} if role is None else {"role": role, "content": content}
    when = {"$date": {"$numberLong": str(1_700_000_000_000 + second)}}
    return {"_id": {"$oid": "65"}, "job_id": {"$oid": job}, "timestamp": when, **told, **more}


def test_jobs_of_an_audit_trail_are_brought_together_and_ordered(tmp_path: Path) -> None:
    calls = [{"id": "c1", "name": "ls", "arguments": {"path": "/", "depth": {"$numberInt": "2"}}}]
    trail = [
        document("b", 1, "user", "other"),
        document("a", 3, "tool", {"files": 1}, tool_call_id="c1"),
        document("a", 1, "user", "Look"),
        document("a", 2, "assistant", None, tool_calls=calls),
        document("a", 4, "assistant", "a"),
        document("a", 5, None, status="completed"),
        document("b", 2, "assistant", "b"),
        document("b", 3, None, status="failed"),
    ]
    path = write_rows(tmp_path / "trail.json", trail)
    (row,) = run("mongodb", tmp_path / "good.jsonl", path, "--only", "status=completed")
    assert [message["role"] for message in row["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert row["messages"][1]["tool_calls"][0]["arguments"] == {"path": "/", "depth": 2}
    assert row["messages"][2]["content"] == '{"files": 1}'
    assert row["task"] == "job:a"
    assert [one["task"] for one in run("mongodb", tmp_path / "all.jsonl", path)] == ["job:b", "job:a"]


def test_a_trail_may_have_other_fields_and_whole_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    talk = [{"who": "user", "data": {"text": "q"}}, {"who": "assistant", "data": {"text": "a"}}]
    path = write_rows(
        tmp_path / "trail.json", [{"job": {"name": "j"}, "log": talk}, {"log": talk}, {"job": {"name": "k"}}]
    )
    fields = ["--job", "job.name", "--messages", "log", "--role", "who", "--content", "data.text"]
    (row,) = run("mongodb", tmp_path / "out.jsonl", path, *fields)
    assert row["messages"] == [said("user", "q"), said("assistant", "a")]
    told = capsys.readouterr().err
    assert f"{path}, row 2: has no field job.name" in told
    assert "job k: `messages` must be a list that is not empty" in told


def test_extended_json_becomes_plain() -> None:
    value = {"a": {"$numberLong": "5"}, "b": [{"$numberDouble": "1.5"}], "c": {"$date": "2026-01-01T00:00:00Z"}}
    assert plain({**value, "d": {"$numberInt": "x"}, "e": {"$other": 1}, "f": {"$date": {"$numberLong": "7"}}}) == {
        "a": 5,
        "b": [1.5],
        "c": "2026-01-01T00:00:00Z",
        "d": "x",
        "e": {"$other": 1},
        "f": 7,
    }


def made(text: str, edits: list[Any]) -> str:
    for edit in edits:
        assert text.count(edit.old) == 1
        text = text.replace(edit.old, edit.new)
    return text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a\nb\nc\n", "a\nB\nc\n"),
        ("x\nx\nx\ny\n", "x\nx\nz\nx\ny\n"),
        ("a\nb\na\nb\na\n", "a\nb\na\nc\na\n"),
        ("a\nb\nc\nd\ne\nf\ng\n", "b\nc\nD\ne\nf\ng\nh\n"),
        ("a\nb", "a\nb\n"),
        ("a\na\na\n", "a\na\n"),
        ("a\r\nb\r\n", "a\r\nc\r\n"),
    ],
)
def test_edits_turn_the_one_text_into_the_other(before: str, after: str) -> None:
    assert made(before, edits_of(before, after)) == after


def test_an_edit_has_no_more_around_it_than_it_takes() -> None:
    lines = [f"line {number}\n" for number in range(50)]
    (edit,) = edits_of("".join(lines), "".join([*lines[:20], "new\n", *lines[21:]]))
    assert (edit.old, edit.new) == ("line 20\n", "new\n")


class Repository:
    """A real repository."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._git("init", "-q", "-b", "main")

    def commit(self, message: str, files: dict[str, str | bytes]) -> None:
        for name, text in files.items():
            (self.folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        self._git("add", "-A")
        self._git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty-message", "-m", message)

    def _git(self, *arguments: str) -> None:
        subprocess.run(["git", "-C", str(self.folder), *arguments], check=True, capture_output=True)


def test_commits_become_edits_that_make_the_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    repository = Repository(tmp_path / "repository")
    first = "".join(f"value = {number}\n" for number in range(30))
    repository.commit("Begin", {"a b.py": first, "blob.py": b"\0x", "note.md": "one\n"})
    second = first.replace("= 3\n", "= three\n").replace("= 25\n", "= many\n")
    repository.commit("Spell out\n\nWords are clearer.", {"a b.py": second, "blob.py": b"\0y", "note.md": "two\n"})
    repository.commit("Rewrite", {"a b.py": second.replace("value", "number")})
    repository.commit("Add", {"new.py": "1\n"})
    rows = run("git", tmp_path / "out.jsonl", repository.folder, "--glob", "*.py", "--max-edits", "2")
    told = capsys.readouterr().err
    assert "blob.py: is no text" in told
    (row,) = [one for one in rows if "Spell out" in one["messages"][0]["content"]]
    assert row["messages"][0]["content"] == f"Spell out\n\nWords are clearer.\n\nThis is a b.py:\n\n{first}"
    text = first
    for one in row["messages"][1]["tool_calls"]:
        arguments = one["function"]["arguments"]
        assert arguments["path"] == "a b.py"
        assert text.count(arguments["old_str"]) == 1
        text = text.replace(arguments["old_str"], arguments["new_str"])
    assert text == second
    assert row["task"].startswith("git:")
    assert len(run("git", tmp_path / "md.jsonl", repository.folder, "--glob", "*.md")) == 1
    few = run("git", tmp_path / "few.jsonl", repository.folder, "--glob", "*.py", "--max-edits", "1")
    assert [row for row in few if "Spell out" in row["messages"][0]["content"]] == []


def test_what_is_no_repository_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit("Begin", {"a": "1\n"})
    for place, revisions in ((tmp_path, "HEAD"), (repository.folder, "--output=x"), (repository.folder, "absent")):
        arguments = ["git", str(place), f"--revisions={revisions}", "-o", str(tmp_path / "out.jsonl")]
        assert main(["data", "import", *arguments]) == EXIT_INVALID
        assert "name a repository and revisions of it" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_trials_of_a_run_become_rows_with_reward_and_task(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], finished_run: Path
) -> None:
    (row,) = run("runs", tmp_path / "out.jsonl", finished_run)
    assert (row["reward"], row["taskName"], row["task"], row["trial"]) == (1.0, "one", "sha256:1", "one__a")
    assert row["messages"][1] == {"role": "assistant", **called({**call(path="/"), "id": "c1"}, content="I look.")}
    told = capsys.readouterr().err
    assert "trial one__b: has reward 0, below 1" in told
    assert "trial two__a: is void" in told
    assert len(run("runs", tmp_path / "all.jsonl", finished_run, "--minimum-reward", "0")) == 2
