"""Whether the calls of a conversation fit the tools that it offers, and each result its call. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from whetstone_artifacts.data.formats import Message

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator


def call_problems(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what is wrong with calls, results and tools of a row; each names its place and the fix.

    Args:
        messages: As `to_messages` returns them.
        tools: Functions that the row offers, with or without the wrapper `function`; none are checked when empty.
    """
    offered: dict[str, Draft202012Validator | None] = {}
    for number, tool in enumerate(tools):
        function = tool.get("function", tool)
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str) or not name:
            yield f'tools[{number}] has no name; write {{"function": {{"name": ..., "parameters": {{...}}}}}}'
            continue
        offered[name], problem = _validator(json.dumps(function.get("parameters") or {}))
        if problem:
            yield f"tools[{number}].parameters is no JSON schema ({problem}); correct it"
    yield from _results(messages)
    for place, function in _calls(messages):
        if not tools:
            continue
        if function["name"] not in offered:
            yield f"{place} calls {function['name']!r}, which is not among its tools; offer it, or correct the name"
        elif (validator := offered[function["name"]]) is not None:
            for error in validator.iter_errors(function["arguments"]):
                where = "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in error.absolute_path)
                yield f"{place}.arguments{where}: {_short(error.message)}; correct it, or the tool's schema"


def _calls(messages: Sequence[Message]) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, message in enumerate(messages):
        for index, call in enumerate(message.get("tool_calls", ())):
            yield f"message {number}, tool_calls[{index}]", call["function"]


def _results(messages: Sequence[Message]) -> Iterator[str]:
    """Yield results that answer no call, and calls that the assistant goes on without a result of."""
    waiting: list[str | None] = []
    for number, message in enumerate(messages):
        if message["role"] == "tool":
            answered = message.get("tool_call_id")
            if not waiting:
                yield f"message {number} is the result of no call; put the call before it"
            elif answered is not None and any(waiting) and answered not in waiting:
                yield f"message {number}.tool_call_id is {answered!r}, which no open call has; name the call"
            else:
                waiting.remove(answered if answered in waiting else waiting[0])
            continue
        if waiting:
            yield f"message {number} comes before the results of {len(waiting)} calls; add a `tool` message for each"
        waiting = [call.get("id") for call in message.get("tool_calls", ())]


@lru_cache(maxsize=256)
def _validator(schema: str) -> "tuple[Draft202012Validator | None, str]":
    """Return a validator for a schema, as text so that rows with the same tools share it; or why there is none."""
    from jsonschema import Draft202012Validator, SchemaError

    parsed = json.loads(schema)
    try:
        Draft202012Validator.check_schema(parsed)
    except SchemaError as error:
        return None, _short(error.message)
    return Draft202012Validator(parsed), ""


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}…"
