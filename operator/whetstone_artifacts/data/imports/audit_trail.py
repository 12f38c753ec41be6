"""An audit trail that `mongoexport` wrote: one document a line, in MongoDB's Extended JSON (v2).

Each document is one message of a job, or holds all of a job's messages. Documents are brought together in a temporary
file, so that a long trail costs no memory.
"""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from whetstone_artifacts.data.example import read_example
from whetstone_artifacts.data.formats import FormatError
from whetstone_artifacts.data.imports.taken import Row, Skipped
from whetstone_artifacts.data.lines import read_lines

_NUMBERS: Final = {"$numberInt": int, "$numberLong": int, "$numberDouble": float, "$numberDecimal": float}
_TEXTS: Final = ("$oid", "$date", "$symbol", "$uuid")


@dataclass(frozen=True, kw_only=True)
class Fields:
    """Where a document says what; names of fields, with dots for fields inside others.

    Args:
        job: What the messages of one job share.
        order: What they are ordered by.
        messages: List of all messages of the job; empty where each document is one message.
        role: Who speaks.
        content: What is said.
        calls: The calls of tools.
    """

    job: str = "job_id"
    order: str = "timestamp"
    messages: str = ""
    role: str = "role"
    content: str = "content"
    calls: str = "tool_calls"


def from_audit_trail(
    paths: Sequence[Path], fields: Fields, only: tuple[str, str] | None = None
) -> Iterator[Row | Skipped]:
    """Yield the jobs of an audit trail as rows; a row's `task` is its job.

    Args:
        paths: Files of JSON lines.
        fields: Where documents say what.
        only: Takes only jobs one of whose documents has this value in this field.

    Raises:
        OSError: A file cannot be read.
    """
    with closing(sqlite3.connect("")) as database:
        database.execute("CREATE TABLE documents (number INTEGER PRIMARY KEY, job TEXT, document TEXT)")
        database.execute("CREATE INDEX jobs ON documents (job)")
        for path in paths:
            for line in read_lines(path):
                document = plain(line.value)
                job = _at(document, fields.job)
                if line.problem or job is None:
                    problem = line.problem or f"has no field {fields.job}; name the field of its job with --job"
                    yield Skipped(place=f"{path}, row {line.number}", problem=problem)
                    continue
                database.execute(
                    "INSERT INTO documents (job, document) VALUES (?, ?)",
                    (str(job), json.dumps(document)),
                )
        for (job,) in database.execute("SELECT job FROM documents GROUP BY job ORDER BY min(number)"):
            found = database.execute("SELECT document FROM documents WHERE job = ? ORDER BY number", (job,))
            documents = sorted((json.loads(text) for (text,) in found), key=lambda one: _key(_at(one, fields.order)))
            if only is None or any(_text(_at(one, only[0])) == only[1] for one in documents):
                yield _row(job, documents, fields)


def plain(value: Any) -> Any:
    """Return a value of Extended JSON as plain JSON: identities and times as text, numbers as numbers."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((key, item),) = value.items()
        try:
            if key in _NUMBERS and isinstance(item, str):
                return _NUMBERS[key](item)
        except ValueError:
            return item
        if key in _TEXTS:
            return plain(item)
    return {key: plain(item) for key, item in value.items()}


def _row(job: str, documents: Sequence[Row], fields: Fields) -> Row | Skipped:
    messages: Sequence[Any] = documents
    if fields.messages:
        messages = [one for document in documents for one in _at(document, fields.messages) or []]
    said = [_message(one, fields) if isinstance(one, dict) else one for one in messages]
    row: Row = {"messages": [one for one in said if one is not None], "task": f"job:{job}"}
    try:
        read_example(row)
    except FormatError as error:
        return Skipped(place=f"job {job}", problem=str(error))
    return row


def _message(document: Row, fields: Fields) -> Row | None:
    """Return the message of a document; None for one that says nothing, such as that a job has begun."""
    role, content, calls = (_at(document, name) for name in (fields.role, fields.content, fields.calls))
    if role is None:
        return None
    text = content if content is None or isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    named = {"tool_call_id": document["tool_call_id"]} if isinstance(document.get("tool_call_id"), str) else {}
    return {"role": role, "content": text or "", **({"tool_calls": calls} if calls else {}), **named}


def _at(document: Any, name: str) -> Any:
    for part in name.split("."):
        document = document.get(part) if isinstance(document, dict) else None
    return document


def _key(value: Any) -> tuple[int, float, str]:
    """Return what orders values of several types: numbers, then texts, as times in ISO 8601 are."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return 0, float(value), ""
    return (2, 0.0, "") if value is None else (1, 0.0, str(value))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
