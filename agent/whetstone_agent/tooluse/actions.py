"""Actions as text: one JSON object that names a tool and its arguments; the tool `FINAL` gives the answer and ends.

{"tool_name": "retrieve_documents", "args": {"collection": "handbook", "query": "days of leave"}}
{"tool_name": "FINAL", "args": {"answer": "30"}}
"""

import json
from dataclasses import dataclass, field
from typing import Any, Final

FINAL: Final = "FINAL"
ANSWER: Final = "answer"


class MalformedActionError(ValueError):
    """The text is no action; the message says what one looks like."""


@dataclass(frozen=True, kw_only=True)
class Action:
    """A call of a tool."""

    tool: str
    args: dict[str, Any] = field(default_factory=dict)

    @property
    def answer(self) -> str | None:
        """The answer of a `FINAL`; None for other tools."""
        return str(self.args.get(ANSWER) or "") if self.tool == FINAL else None

    def to_text(self) -> str:
        """Return the action as agents write it."""
        return json.dumps({"tool_name": self.tool, "args": self.args}, ensure_ascii=False)


def final(answer: str) -> Action:
    """Return the action that gives an answer."""
    return Action(tool=FINAL, args={ANSWER: answer})


def parse_action(text: str) -> Action:
    """Read an action.

    Raises:
        MalformedActionError: It is none.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedActionError(f'not JSON; write {{"tool_name": "...", "args": {{...}}}} ({error})') from error
    if not isinstance(found, dict) or not isinstance(found.get("tool_name"), str):
        raise MalformedActionError('write one object with "tool_name" and "args"')
    args = found.get("args", {})
    if not isinstance(args, dict):
        raise MalformedActionError('"args" must be an object')
    if found.keys() - {"tool_name", "args"}:
        raise MalformedActionError('only "tool_name" and "args" are read; put arguments into "args"')
    return Action(tool=found["tool_name"], args=args)
