"""A row of training data, read in whatever form it has: a conversation, or a pair of answers. Pure."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from whetstone_api.training_preference import Granularity

from whetstone_artifacts.data.formats import FORMS, Message, to_messages, to_tools, without_marks
from whetstone_artifacts.data.pairs import SIDES, to_pair


@dataclass(frozen=True, kw_only=True)
class Example:
    """A row.

    Args:
        form: `messages`, `conversations` or `prompt`; `pair` for a pair.
        messages: The conversation; of a pair, the prompt and the better answer.
        prompt: Of a pair, how many of the messages are its prompt.
        rejected: Of a pair, the worse answer.
        tools: Functions that the row offers the model.
        task: The task that the row came from, where the row says so.
    """

    form: str
    messages: list[Message]
    prompt: int = 0
    rejected: list[Message]
    tools: list[dict[str, Any]]
    task: str | None

    @property
    def is_pair(self) -> bool:
        """Whether it is a pair of answers."""
        return self.form == "pair"

    @property
    def asked(self) -> list[Message]:
        """What comes before the assistant's first turn."""
        first = next(n for n, message in enumerate(self.messages) if message["role"] == "assistant")
        return self.messages[:first]

    @property
    def digest(self) -> bytes:
        """Digest of all that is learned from it, the same in every form."""
        parts = (without_marks(self.messages), without_marks(self.rejected), self.tools)
        return _digest(parts)

    @property
    def question(self) -> bytes:
        """Digest of what users ask before the assistant's first turn, whatever the case and the spaces."""
        said = " ".join(message["content"] for message in self.asked if message["role"] != "system")
        return _digest(" ".join(said.lower().split()))


def read_example(value: Mapping[str, Any]) -> Example:
    """Return the example that a row holds.

    Raises:
        FormatError: With the place inside the row, and the fix.
    """
    task = value.get("task")
    told = task if isinstance(task, str) and task else None
    tools = to_tools(value) or []
    if any(side in value for side in SIDES):
        pair = to_pair(value, Granularity.TRAJECTORY)
        messages = [*pair.prompt, *pair.chosen]
        return Example(
            form="pair", messages=messages, prompt=len(pair.prompt), rejected=pair.rejected, tools=tools, task=told
        )
    messages = to_messages(value)
    form = next(form for form in FORMS if form in value)
    return Example(form=form, messages=messages, rejected=[], tools=tools, task=told)


def text_of(messages: Iterable[Message]) -> str:
    """Return all that is said in messages, calls of tools as JSON, a line each."""
    parts = []
    for message in messages:
        parts.append(message["content"])
        parts += [json.dumps(call["function"], ensure_ascii=False) for call in message.get("tool_calls", ())]
    return "\n".join(part for part in parts if part)


def _digest(value: object) -> bytes:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
