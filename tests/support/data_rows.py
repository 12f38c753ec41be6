"""Rows for the tests of data tools."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

LS = {
    "type": "function",
    "function": {
        "name": "ls",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "depth": {"type": "integer"}},
            "required": ["path"],
            "additionalProperties": False,
        },
    },
}


def said(role: str, content: str | None = "", **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def called(*calls: Mapping[str, Any], content: str = "") -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def call(name: str = "ls", call_id: str | None = None, **arguments: Any) -> dict[str, Any]:
    named = {} if call_id is None else {"id": call_id}
    return {**named, "type": "function", "function": {"name": name, "arguments": arguments}}


def conversation(*messages: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"messages": list(messages), **more}


def asked(question: str, answer: str = "yes", **more: Any) -> dict[str, Any]:
    return conversation(said("user", question), said("assistant", answer), **more)


def write_rows(path: Path, rows: Iterable[Mapping[str, Any] | str]) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path
