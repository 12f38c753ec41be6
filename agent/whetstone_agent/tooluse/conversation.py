"""The conversation between an agent and the environment, in two protocols.

Native    the model is given the tools and calls them by its own template; a reply without a call is the answer
Text      tools and calls are JSON in messages, for models whose template knows no tools

It is what is sent to the model and what training rows hold, to the character.
"""

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from whetstone_agent.tooluse.actions import FINAL, Action, MalformedActionError, final, parse_action
from whetstone_agent.tooluse.toolbox import Toolbox

type Message = dict[str, Any]

INSTRUCTIONS: Final = (
    "Answer the question. You can call one tool at a time; you are then shown what it gives. "
    "If it takes a tool that you do not have, or that the policy forbids, "
    "say that you cannot answer the question with the tools that you have."
)
_NATIVE: Final = "As soon as you know the answer, reply with it alone, as short as possible."
_TEXT: Final = """\
Reply with one JSON object and nothing else: {"tool_name": name, "args": {argument: value}}
As soon as you know the answer, give it, as short as possible: \
{"tool_name": "FINAL", "args": {"answer": text}}
The tools, one a line:"""


class Protocol(StrEnum):
    """How tools are called."""

    NATIVE = "Native"
    TEXT = "Text"


@dataclass(frozen=True, kw_only=True)
class Turn:
    """What an agent or an expert says in one step.

    Args:
        action: The action, as the environment reads it.
        message: The message, as it stands in the conversation.
        prompt_tokens: Tokens that it took to ask.
        completion_tokens: Tokens of the reply.
    """

    action: str
    message: Message
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(kw_only=True)
class Conversation:
    """Messages so far.

    Args:
        protocol: How tools are called.
        toolbox: The instance's tools.
        question: What the environment said at first.
    """

    protocol: Protocol
    toolbox: Toolbox
    question: str
    messages: list[Message] = field(init=False)

    def __post_init__(self) -> None:
        self.messages = [
            {"role": "system", "content": self._system()},
            {"role": "user", "content": self.question},
        ]

    @property
    def tools(self) -> list[dict[str, Any]] | None:
        """What goes beside the messages; None in the protocol whose messages hold it."""
        if self.protocol is Protocol.TEXT:
            return None
        # The answer is a reply without a call.
        return [one for one in self.toolbox.functions() if one["function"]["name"] != FINAL] or None

    def add(self, turn: Turn, observation: str | None) -> None:
        """Append a turn and what the environment said to it, if the episode goes on."""
        self.messages.append(turn.message)
        if observation is None:
            return
        calls = turn.message.get("tool_calls")
        answered = {"role": "tool", "tool_call_id": calls[0]["id"]} if calls else {"role": "user"}
        self.messages.append({**answered, "content": observation})

    def turn(self, action: Action) -> Turn:
        """Return the turn that does an action, as an expert writes it."""
        if self.protocol is Protocol.TEXT:
            return Turn(action=action.to_text(), message={"role": "assistant", "content": action.to_text()})
        if action.answer is not None:
            return Turn(action=action.to_text(), message={"role": "assistant", "content": action.answer})
        arguments = json.dumps(action.args, ensure_ascii=False)
        return Turn(action=action.to_text(), message=_call(self._id(), action.tool, arguments, ""))

    def read(self, reply: Message, *, complete: bool) -> tuple[str, Message]:
        """Return the action of a model's reply, and the message to keep of it.

        Args:
            reply: The reply's message, in OpenAI's form.
            complete: The model ended it itself; half an answer is none.
        """
        text = reply.get("content") or ""
        calls = reply.get("tool_calls") or []
        if self.protocol is Protocol.TEXT:
            return _embedded(text), {"role": "assistant", "content": text}
        if not calls:
            return final(text.strip()).to_text() if complete else text, {"role": "assistant", "content": text}
        # One call a step: what else the reply calls is dropped, since its result would not be shown.
        function = calls[0]["function"]
        try:
            args = json.loads(function["arguments"] or "{}")
        except (ValueError, RecursionError):
            # No template can render arguments that are no JSON, so they stand as text, with the error below.
            return function["arguments"], {"role": "assistant", "content": f"{text}{function['arguments']}"}
        action = json.dumps({"tool_name": function["name"], "args": args}, ensure_ascii=False)
        return action, _call(self._id(), function["name"], function["arguments"] or "{}", text)

    def _id(self) -> str:
        """Return the next call's id: the same in every run, and nine letters and digits, as Mistral's template asks."""
        return f"call{len(self.messages):05d}"

    def _system(self) -> str:
        if self.protocol is Protocol.NATIVE:
            return f"{INSTRUCTIONS}\n{_NATIVE}"
        listed = [json.dumps(one["function"], ensure_ascii=False) for one in self.toolbox.functions()]
        return "\n".join([INSTRUCTIONS, _TEXT, *listed])


def _embedded(text: str) -> str:
    """Return the first JSON object in a reply that has a tool's name; the whole reply where there is none."""
    decoder = json.JSONDecoder()
    place = text.find("{")
    while place >= 0:
        try:
            found, _ = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict) and "tool_name" in found:
            return json.dumps(found, ensure_ascii=False)
        place = text.find("{", place + 1)
    return text


def _call(name: str, tool: str, arguments: str, text: str) -> Message:
    call = {"id": name, "type": "function", "function": {"name": tool, "arguments": arguments}}
    return {"role": "assistant", "content": text, "tool_calls": [call]}


def same_action(one: str, other: str) -> bool:
    """Say whether two actions do the same, however they are written."""
    try:
        return parse_action(one) == parse_action(other)
    except MalformedActionError:
        return one == other
