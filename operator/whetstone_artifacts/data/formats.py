"""The forms in which chat data is found, brought into one: a list of messages, as chat templates take them.

    {"messages": [{"role": "user", "content": "…"}, …]}                  OpenAI's, also with tool calls
    {"conversations": [{"from": "human", "value": "…"}, …]}              ShareGPT's; also with role and content
    {"prompt": "…", "completion": "…"}                                   TRL's, each also as a list of messages

Tool calls come with and without the wrapper `{"type": "function", "function": {…}}`, their arguments as an object or
as JSON text; templates get the wrapper and an object. A turn may be marked with `"suboptimal": true`. Pure.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

Message = dict[str, Any]

ROLES = ("system", "user", "assistant", "tool")
SPEAKERS = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "chatgpt": "assistant",
    "system": "system",
    "observation": "tool",
    "tool": "tool",
}
"""Roles by the names that ShareGPT's files use."""
FORMS = ("messages", "conversations", "prompt")
MARK = "suboptimal"
"""Key of a turn that is not to be learned from, where the job says so; OpenAI's files write `"weight": 0`."""


class FormatError(Exception):
    """A row is in none of the forms, or says something that none of them can mean; the text has the fix."""


def to_messages(value: Mapping[str, Any]) -> list[Message]:
    """Return the messages of a row in any of the forms, checked.

    Raises:
        FormatError: With the place inside the row, and the fix.
    """
    if "chosen" in value:
        raise FormatError("is a pair of `chosen` and `rejected`; set spec.method to DPO, or remove the row")
    found = [form for form in FORMS if form in value]
    if len(found) != 1:
        raise FormatError(
            "needs exactly one of `messages`, `conversations`, and `prompt` with `completion`"
            f" (it has {', '.join(found) or 'none'})"
        )
    if found == ["prompt"]:
        messages = _from_prompt(value)
    else:
        raw = value[found[0]]
        if not isinstance(raw, list) or not raw:
            raise FormatError(f"`{found[0]}` must be a list that is not empty")
        messages = [_message(item, where=f"{found[0]}[{index}]") for index, item in enumerate(raw)]
    _check_order(messages)
    return messages


def to_turns(value: Mapping[str, Any], name: str, *, role: str) -> list[Message]:
    """Return the messages of one part of a row: text, one message, or a list of messages.

    Args:
        value: The row.
        name: Key of the part, which the row has.
        role: Who says it when it is text.

    Raises:
        FormatError: With the place inside the row, and the fix.
    """
    part = value[name]
    if isinstance(part, str):
        return [_message({"role": role, "content": part}, where=name)]
    if isinstance(part, dict):
        return [_message(part, where=name)]
    if not isinstance(part, list) or not part:
        raise FormatError(f"`{name}` must be text, or a list of messages that is not empty")
    return [_message(item, where=f"{name}[{index}]") for index, item in enumerate(part)]


def without_marks(messages: Sequence[Message]) -> list[Message]:
    """Return messages without what only the training reads."""
    return [{key: value for key, value in message.items() if key != MARK} for message in messages]


def to_tools(value: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return the functions that a row offers the model (`tools`, as a list or as JSON text); None without any.

    Raises:
        FormatError: They are no list of objects.
    """
    tools = value.get("tools")
    if isinstance(tools, str) and tools.strip():
        try:
            tools = json.loads(tools)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"`tools` is text that is not JSON ({error})") from error
    if not tools:
        return None
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise FormatError("`tools` must be a list of function descriptions")
    return tools


def to_api(messages: Sequence[Message]) -> list[Message]:
    """Return messages as OpenAI's API takes them: the arguments of calls as JSON text."""
    return [
        {**message, **({"tool_calls": _as_text(message)} if "tool_calls" in message else {})}
        for message in without_marks(messages)
    ]


def _as_text(message: Message) -> list[dict[str, Any]]:
    return [
        {**call, "function": {**call["function"], "arguments": json.dumps(call["function"]["arguments"])}}
        for call in message["tool_calls"]
    ]


def _from_prompt(value: Mapping[str, Any]) -> list[Message]:
    if "completion" not in value:
        raise FormatError("has `prompt` without `completion`; add the answer to learn")
    return [*to_turns(value, "prompt", role="user"), *to_turns(value, "completion", role="assistant")]


def _message(item: Any, *, where: str) -> Message:
    if not isinstance(item, dict):
        raise FormatError(f'{where} is not an object; write {{"role": ..., "content": ...}}')
    if "from" in item and "role" not in item:
        role, content, spelled = SPEAKERS.get(str(item["from"])), item.get("value"), f"from is {item['from']!r}"
        names: Sequence[str] = tuple(SPEAKERS)
    else:
        role, content, spelled = item.get("role"), item.get("content"), f"role is {item.get('role')!r}"
        names = ROLES
    if role not in ROLES:
        raise FormatError(f"{where}.{spelled}; use one of {', '.join(names)}")
    listed = item.get("tool_calls") or []
    if not isinstance(listed, list):
        raise FormatError(f"{where}.tool_calls is {type(listed).__name__}; it must be a list")
    calls = [_call(call, where=f"{where}.tool_calls[{n}]") for n, call in enumerate(listed)]
    if calls and role != "assistant":
        raise FormatError(f"{where}.tool_calls: only the assistant calls tools; correct the role")
    if content is None and calls:
        content = ""
    if not isinstance(content, str):
        raise FormatError(f"{where}.content is {type(content).__name__}; it must be a string")
    if role == "assistant" and not content.strip() and not calls:
        raise FormatError(f"{where}.content of the assistant is blank; write its answer")
    marked = {MARK: True} if role == "assistant" and _is_marked(item, where=where) else {}
    kept = {name: item[name] for name in ("name", "tool_call_id") if role == "tool" and isinstance(item.get(name), str)}
    return {"role": role, "content": content, **({"tool_calls": calls} if calls else {}), **marked, **kept}


def _is_marked(item: Mapping[str, Any], *, where: str) -> bool:
    mark = item.get(MARK)
    if mark is not None and not isinstance(mark, bool):
        raise FormatError(f"{where}.{MARK} is {mark!r}; it must be true or false")
    return mark is True or item.get("weight") == 0


def _call(call: Any, *, where: str) -> dict[str, Any]:
    function = call.get("function", call) if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
        raise FormatError(f'{where} has no function name; write {{"function": {{"name": ..., "arguments": {{...}}}}}}')
    arguments = function.get("arguments", {})
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError) as error:
            raise FormatError(f"{where}: arguments is text that is not JSON ({error})") from error
    if not isinstance(arguments, dict):
        raise FormatError(f"{where}: arguments must be an object, or one as JSON text")
    kept = {"id": call["id"]} if isinstance(call.get("id"), str) else {}
    return {**kept, "type": "function", "function": {"name": function["name"], "arguments": arguments}}


def _check_order(messages: Sequence[Message]) -> None:
    if not any(message["role"] == "assistant" for message in messages):
        raise FormatError("has no assistant turn, so there is nothing to learn; add one or remove the row")
    if messages[0]["role"] == "assistant":
        raise FormatError("starts with the assistant, which answers nothing; put a user message before it")
