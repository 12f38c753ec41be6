"""Logs of chats in the shape of OpenAI's API: what was asked and what was answered, a line each.

    {"request": {"messages": […], "tools": […]}, "response": {"choices": [{"message": {…}}]}}
    {"body": {"messages": […]}, "response": {"body": {"choices": […]}}}           as of batches
    {"messages": […], "choices": […]}                                             as of stored completions

A chat is logged anew with every turn. Only its last state becomes a row, since it holds all before it.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from whetstone_artifacts.data.example import read_example
from whetstone_artifacts.data.formats import FormatError
from whetstone_artifacts.data.imports.taken import Row, Skipped
from whetstone_artifacts.data.lines import Line, read_lines
from whetstone_artifacts.report.untrusted import items, mapping


def from_chat_logs(paths: Sequence[Path]) -> Iterator[Row | Skipped]:
    """Yield the chats of log files, each once, in its last state.

    Args:
        paths: Files of JSON lines; they are read twice.

    Raises:
        OSError: A file cannot be read.
    """
    passed = {state for path in paths for line in read_lines(path) for state in _earlier(line)}
    taken: set[bytes] = set()
    for path in paths:
        for line in read_lines(path):
            found = _row(line)
            if isinstance(found, str):
                yield Skipped(place=f"{path}, row {line.number}", problem=found)
                continue
            state = _state(found["messages"])
            if state not in passed and state not in taken:
                taken.add(state)
                yield found


def _row(line: Line) -> Row | str:
    """Return the chat of a line, or why it holds none."""
    if line.problem:
        return line.problem
    request = mapping(line.value.get("request")) or line.value
    request = mapping(request.get("body")) or request
    response = mapping(line.value.get("response")) or line.value
    response = mapping(response.get("body")) or response
    answer = mapping(next(iter(items(response.get("choices"))), None)).get("message")
    messages = [*items(request.get("messages")), *([answer] if answer else [])]
    row: Row = {"messages": [_message(message) for message in messages]}
    if request.get("tools"):
        row["tools"] = request["tools"]
    try:
        read_example(row)
    except FormatError as error:
        return str(error)
    return row


def _message(message: Any) -> Any:
    """Return a message whose parts are one text; parts that are no text keep it from being read."""
    if not isinstance(message, dict) or not isinstance(message.get("content"), list):
        return _kept(message)
    texts: list[Any] = [mapping(part).get("text") for part in message["content"]]
    return _kept({**message, "content": "\n".join(texts) if all(isinstance(one, str) for one in texts) else texts})


def _kept(message: Any) -> Any:
    """Return a message without what only the API says, such as refusals and annotations that are empty."""
    if not isinstance(message, dict):
        return message
    return {key: item for key, item in message.items() if key in _KEYS and (item is not None or key == "content")}


_KEYS = ("role", "content", "tool_calls", "tool_call_id", "name", "weight", "suboptimal")


def _earlier(line: Line) -> Iterator[bytes]:
    """Yield the states that a chat went through before this one."""
    found = _row(line)
    if not isinstance(found, str):
        messages = found["messages"]
        for number in range(1, len(messages)):
            if messages[number - 1].get("role") == "assistant":
                yield _state(messages[:number])


def _state(messages: Sequence[Mapping[str, Any]]) -> bytes:
    text = json.dumps(messages, sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
