"""How hard the tool use of a conversation is: the rung of the ladder on which models learn to call tools. Pure."""

import json
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any, Final

from whetstone_artifacts.data.formats import Message

LEAST_CHARACTERS: Final = 3
"""Shorter values of arguments stand in results by chance."""


class Rung(StrEnum):
    """What a conversation asks of a model's tool calls, from easy to hard."""

    NONE = "none"
    """No call."""
    SINGLE = "single"
    """One call."""
    PARALLEL = "parallel"
    """Several calls, all in one turn of the assistant."""
    SEQUENTIAL = "sequential"
    """Calls in several turns on one question, none of which uses what another returned."""
    NESTED = "nested"
    """Calls in several turns on one question; one uses what an earlier one returned."""
    MULTI_TURN = "multi-turn"
    """The user speaks again after a call."""


def rung_of(messages: Sequence[Message]) -> Rung:
    """Return the rung of a conversation.

    Args:
        messages: As `to_messages` returns them.
    """
    turns = [number for number, message in enumerate(messages) if message.get("tool_calls")]
    if not turns:
        return Rung.NONE
    if any(message["role"] == "user" for message in messages[turns[0] :]):
        return Rung.MULTI_TURN
    if len(turns) == 1:
        return Rung.SINGLE if len(messages[turns[0]]["tool_calls"]) == 1 else Rung.PARALLEL
    return Rung.NESTED if any(_uses_result(messages, turn) for turn in turns[1:]) else Rung.SEQUENTIAL


def _uses_result(messages: Sequence[Message], turn: int) -> bool:
    """Whether a call has an argument that an earlier result holds, and that nobody else said before."""
    before = messages[:turn]
    returned = "\n".join(message["content"] for message in before if message["role"] == "tool")
    told = "\n".join(message["content"] for message in before if message["role"] in ("system", "user"))
    values = [text for call in messages[turn]["tool_calls"] for text in _values(call["function"]["arguments"])]
    return any(text in returned and text not in told for text in values)


def _values(value: Any) -> Iterator[str]:
    """Yield the values inside arguments that are long enough to be known again."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _values(item)
    elif value is not None and not isinstance(value, bool):
        text = value if isinstance(value, str) else json.dumps(value)
        if len(text.strip()) >= LEAST_CHARACTERS:
            yield text.strip()
