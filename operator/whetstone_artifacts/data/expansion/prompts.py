"""What a teacher is asked, and what its replies say. Pure.

Questions are made apart from answers. A question starts from human ones (Self-Instruct, Wang et al. 2022) and is then
rewritten, deeper or broader (Evol-Instruct, Xu et al. 2023). An answer sees only the question and what the seed says of
form and tools; reflection criticises it and mends it (Self-Refine, Madaan et al. 2023).
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from whetstone_artifacts.data.example import Example
from whetstone_artifacts.data.formats import Message, without_marks

Prompt = list[dict[str, str]]
"""Messages of one request."""

_BLOCK: Final = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)
_QUESTION_FORM: Final = 'Reply with one JSON object and nothing else: {"question": "..."}'
NO_FAULTS: Final = "NO FAULTS"

_DEPTH: Final = (
    "Add one more condition that a good answer has to keep.",
    "Put something concrete in the place of something general: names, figures, a file, a case.",
    "Make it need one more step of work or thought before it can be answered.",
    "Make what is given harder to work with: longer, less tidy, or with a detail that is easy to overlook.",
)
_BREADTH: Final = (
    "Write another request of the same field and difficulty, about something that is asked less often.",
    "Write another request of the same kind, from another person with another aim.",
)
OPERATIONS: Final = (_DEPTH[0], _DEPTH[1], _BREADTH[0], _DEPTH[2], _DEPTH[3], _BREADTH[1])
"""Rewrites, in the order in which rounds take them: two deeper ones, a broader one."""


@dataclass(frozen=True, kw_only=True)
class Seed:
    """A human row.

    Args:
        file: Its file, as it was named.
        number: Its line, from 1.
        example: The row.
    """

    file: str
    number: int
    example: Example

    @property
    def question(self) -> str:
        """What is asked before the assistant's first turn."""
        return "\n\n".join(one["content"] for one in self.example.asked if one["role"] == "user")

    @property
    def system(self) -> str:
        """What the system says."""
        return "\n\n".join(one["content"] for one in self.example.asked if one["role"] == "system")

    @property
    def answer(self) -> list[Message]:
        """All from the assistant's first turn on."""
        return without_marks(self.example.messages[len(self.example.asked) :])

    @property
    def plain(self) -> bool:
        """Whether the answer is one text, so that the teacher can just be asked."""
        return not self.example.tools and len(self.answer) == 1 and "tool_calls" not in self.answer[0]


def ask_question(seed: Seed, others: Sequence[Seed]) -> Prompt:
    """Return the request for a new question.

    Args:
        seed: The row that it is to be like.
        others: Rows that show how far the questions reach.
    """
    shown = "".join(f"<request>\n{one.question}\n</request>\n" for one in (*others, seed))
    return _user(
        "Below are requests that people made to an assistant.\n\n"
        f"{shown}\n{_setting(seed)}"
        "Write one new request. It is of the kind of the last one, as long, in the same language, and about something"
        f" else. It must be complete: all that is needed to answer it stands in it.\n\n{_QUESTION_FORM}"
    )


def evolve(seed: Seed, question: str, operation: str) -> Prompt:
    """Return the request for a rewritten question.

    Args:
        seed: The row that it comes from.
        question: The question so far.
        operation: One of `OPERATIONS`.
    """
    return _user(
        f"Rewrite this request to an assistant.\n\n<request>\n{question}\n</request>\n\n{_setting(seed)}"
        f"{operation} It must stay a request that a person would make, that can be answered, and that is at most a"
        f" third longer.\n\n{_QUESTION_FORM}"
    )


def ask_answer(seed: Seed, question: str) -> Prompt:
    """Return the request for an answer: the question itself, or that for a conversation like the seed's."""
    if seed.plain:
        system: Prompt = [{"role": "system", "content": seed.system}] if seed.system else []
        return [*system, *_user(question)]
    return _user(
        "Write how an excellent assistant deals with a request, in the form of this example. Results of tools are yours"
        " to make up, as these tools would return them.\n\n"
        f"<example>\n<request>\n{seed.question}\n</request>\n{_json({'messages': seed.answer})}\n</example>\n\n"
        f"{_setting(seed)}<request>\n{question}\n</request>\n\n{_answer_form(seed)}"
    )


def criticise(seed: Seed, question: str, answer: Sequence[Message]) -> Prompt:
    """Return the request to find faults in an answer."""
    return _user(
        f"{_setting(seed)}<request>\n{question}\n</request>\n\n<answer>\n{_shown(seed, answer)}\n</answer>\n\n"
        "Criticise the answer: what is wrong, missing, made up, unclear or longer than needed? Name each fault and its"
        f" place in a line. If there is none, reply with {NO_FAULTS} alone."
    )


def revise(seed: Seed, question: str, answer: Sequence[Message], critique: str) -> Prompt:
    """Return the request to mend an answer."""
    form = "Reply with the mended answer and nothing else." if seed.plain else _answer_form(seed)
    return _user(
        f"{_setting(seed)}<request>\n{question}\n</request>\n\n<answer>\n{_shown(seed, answer)}\n</answer>\n\n"
        f"<critique>\n{critique}\n</critique>\n\n"
        f"Mend the answer by the critique, and leave what is good as it is. {form}"
    )


def read_question(text: str) -> str | None:
    """Return the question that a reply holds; None where it holds none."""
    value = _object(text)
    question = value.get("question") if value else None
    return question.strip() or None if isinstance(question, str) else None


def read_answer(seed: Seed, text: str) -> list[Any] | None:
    """Return the messages of an answer, unchecked; None where the reply is none."""
    if seed.plain:
        return [{"role": "assistant", "content": text.strip()}] if text.strip() else None
    value = _object(text)
    messages = value.get("messages") if value else None
    return messages if isinstance(messages, list) and messages else None


def finds_nothing(critique: str) -> bool:
    """Whether a critique says that there is no fault."""
    return critique.strip().strip(".").upper() == NO_FAULTS


def _setting(seed: Seed) -> str:
    parts = []
    if seed.system:
        parts.append(f"The assistant is told:\n<system>\n{seed.system}\n</system>\n\n")
    if seed.example.tools:
        parts.append(f"The assistant has these tools:\n<tools>\n{_json(seed.example.tools)}\n</tools>\n\n")
    return "".join(parts)


def _answer_form(seed: Seed) -> str:
    calls = (
        ", calls of tools with all their arguments, and a `tool` message for each result" if seed.example.tools else ""
    )
    return (
        'Reply with one JSON object and nothing else: {"messages": [...]}. The messages begin and end with the'
        f" assistant's turn{calls}."
    )


def _shown(seed: Seed, answer: Sequence[Message]) -> str:
    return str(answer[0]["content"]) if seed.plain else _json({"messages": list(answer)})


def _object(text: str) -> dict[str, Any] | None:
    """Return the JSON object that a reply is, alone or in a block; None where it is none."""
    found = _BLOCK.search(text)
    for part in (text, found[1] if found else ""):
        try:
            value = json.loads(part)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return value
    return None


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _user(text: str) -> Prompt:
    return [{"role": "user", "content": text}]
