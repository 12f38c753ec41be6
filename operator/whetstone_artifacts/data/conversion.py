"""Rows written in another form; read again, they say the same. Pure."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from whetstone_artifacts.data.example import Example
from whetstone_artifacts.data.formats import FORMS, MARK, Message, to_api
from whetstone_artifacts.data.pairs import SIDES

_SPEAKERS: Final = {"system": "system", "user": "human", "assistant": "gpt", "tool": "tool"}


class Form(StrEnum):
    """A form to write."""

    OPENAI = "openai"
    """`messages`, the arguments of calls as JSON text, turns that are not to be learned with `weight` 0."""
    SHAREGPT = "sharegpt"
    """`conversations` with `from` and `value`."""
    PROMPT = "prompt"
    """`prompt` and `completion`: TRL's. The completion begins with the assistant's first turn."""


def convert(value: Mapping[str, Any], example: Example, form: Form) -> dict[str, Any]:
    """Return a row in a form; fields beside the conversation stay.

    Args:
        value: The row as it stands.
        example: The row as it was read.
        form: The form; a pair's prompt takes it, and its answers are written the same way.
    """
    ours = {*FORMS, "completion", *SIDES, "tools"}
    rest = {key: item for key, item in value.items() if key not in ours}
    tools = {"tools": example.tools} if example.tools else {}
    if example.is_pair:
        chosen = example.messages[example.prompt :]
        sides = {"chosen": _written(chosen, form), "rejected": _written(example.rejected, form)}
        return {_NAMES[form]: _written(example.messages[: example.prompt], form), **sides, **tools, **rest}
    if form is not Form.PROMPT:
        return {_NAMES[form]: _written(example.messages, form), **tools, **rest}
    asked = example.asked
    parts = (asked, example.messages[len(asked) :])
    return {**dict(zip(("prompt", "completion"), map(_plain, parts), strict=True)), **tools, **rest}


_NAMES: Final = {Form.OPENAI: "messages", Form.SHAREGPT: "conversations", Form.PROMPT: "prompt"}


def _written(messages: Sequence[Message], form: Form) -> list[dict[str, Any]]:
    if form is Form.PROMPT:
        return [dict(message) for message in messages]
    if form is Form.OPENAI:
        marks = [{"weight": 0} if message.get(MARK) else {} for message in messages]
        return [{**message, **mark} for message, mark in zip(to_api(messages), marks, strict=True)]
    kept = ({key: item for key, item in message.items() if key not in ("role", "content")} for message in messages)
    return [
        {"from": _SPEAKERS[message["role"]], "value": message["content"], **more}
        for message, more in zip(messages, kept, strict=True)
    ]


def _plain(messages: Sequence[Message]) -> Any:
    """Return one message that has nothing but text as text."""
    alone = len(messages) == 1 and set(messages[0]) == {"role", "content"}
    return messages[0]["content"] if alone and messages[0]["role"] in ("user", "assistant") else list(messages)
