"""Reading of chat data in JSON lines. Every refusal names the spec's field, the row (from 1) and the fix."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whetstone_api.jobs import DatasetFile
from whetstone_api.vocabulary import Reason

from whetstone_trainer.errors import UserError

ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One conversation.

    Args:
        number: Line in the file, from 1.
        messages: Role and content of each message, in order.
        task: Digest of the task that the row came from, where the row says so.
    """

    number: int
    messages: list[dict[str, str]]
    task: str | None


def file_digest(dataset: DatasetFile) -> str:
    """Return `sha256:…` of a dataset's file.

    Raises:
        UserError: `DATASET_NOT_FOUND`.
    """
    path = _existing(dataset)
    with path.open("rb") as stream:
        return "sha256:" + hashlib.file_digest(stream, "sha256").hexdigest()


def read_rows(dataset: DatasetFile) -> Iterator[Row]:
    """Yield the conversations of a dataset, one line at a time. Blank lines are passed over.

    Raises:
        UserError: `DATASET_NOT_FOUND`, `DATASET_EMPTY` or `DATASET_INVALID`.
    """
    path = _existing(dataset)
    empty = True
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            if line.strip():
                empty = False
                yield _row(dataset, number, line)
    if empty:
        raise UserError(
            Reason.DATASET_EMPTY,
            f'{dataset.field}: the file has no rows; write one {{"messages": [...]}} object a line',
        )


def invalid_row(dataset: DatasetFile, number: int, problem: str) -> UserError:
    """Return the refusal of one row: field, row, and the problem with its fix."""
    return UserError(Reason.DATASET_INVALID, f"{dataset.field}, row {number}: {problem}")


def _existing(dataset: DatasetFile) -> Path:
    path = Path(dataset.path)
    if path.is_dir():
        raise UserError(
            Reason.DATASET_NOT_FOUND, f"{dataset.field}: is a folder; name the .jsonl file in it, as in …/train.jsonl"
        )
    if not path.is_file():
        raise UserError(
            Reason.DATASET_NOT_FOUND, f"{dataset.field}: the file does not exist; correct the path or put it there"
        )
    return path


def _row(dataset: DatasetFile, number: int, line: bytes) -> Row:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise invalid_row(
            dataset, number, f"is not JSON ({error}); write one JSON object a line, in UTF-8, with no line break in it"
        ) from error
    if not isinstance(value, dict):
        raise invalid_row(dataset, number, 'is not a JSON object; write {"messages": [...]}')
    messages = value.get("messages")
    if not isinstance(messages, list) or not messages:
        hint = " (it has `conversations`: rename that to `messages`)" if "conversations" in value else ""
        raise invalid_row(dataset, number, f"`messages` must be a list that is not empty{hint}")
    checked = [_message(dataset, number, index, message) for index, message in enumerate(messages)]
    if not any(message["role"] == "assistant" for message in checked):
        raise invalid_row(
            dataset, number, "has no assistant turn, so there is nothing to learn; add one or remove the row"
        )
    if checked[0]["role"] == "assistant":
        raise invalid_row(
            dataset, number, "starts with the assistant, which answers nothing; put a user message before it"
        )
    task = value.get("task")
    return Row(number=number, messages=checked, task=task if isinstance(task, str) else None)


def _message(dataset: DatasetFile, number: int, index: int, message: Any) -> dict[str, str]:
    where = f"messages[{index}]"
    if not isinstance(message, dict):
        raise invalid_row(dataset, number, f'{where} is not an object; write {{"role": ..., "content": ...}}')
    role, content = message.get("role"), message.get("content")
    if role not in ROLES:
        raise invalid_row(dataset, number, f"{where}.role is {role!r}; use one of {', '.join(ROLES)}")
    if message.get("tool_calls"):
        raise invalid_row(dataset, number, f"{where}.tool_calls is not supported; write the call into content as text")
    if not isinstance(content, str):
        raise invalid_row(dataset, number, f"{where}.content is {type(content).__name__}; it must be a string")
    if role == "assistant" and not content.strip():
        raise invalid_row(dataset, number, f"{where}.content of the assistant is blank; write its answer")
    return {"role": role, "content": content}
