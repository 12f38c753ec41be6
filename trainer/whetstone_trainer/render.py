"""From a conversation to token ids and labels, with the model's own chat template.

The mask needs no `{% generation %}` marks. For every assistant turn `i` the template renders the messages before it
with the generation prompt, and the messages up to it. The first must be a prefix of the second, as text and as
tokens; the tokens between are what a server would generate. Of these the loss covers everything up to the last
special token (the end of the turn): what follows it, such as ChatML's line break, is never generated.
"""

import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from whetstone_api.training_data import LossTarget
from whetstone_artifacts.data.formats import MARK, Message, without_marks

IGNORED = -100
"""Label of tokens that carry no loss (`ignore_index` of torch's cross entropy)."""


class TemplateError(Exception):
    """The template cannot render or be masked for this conversation."""


class RewrittenError(TemplateError):
    """The template writes a turn otherwise once more messages follow, so that one rendering cannot serve all turns."""


Tools = list[dict[str, Any]] | None


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """A conversation as the model reads it.

    Args:
        input_ids: Token ids.
        spans: First and past-the-last index of each run of tokens that carries loss, in order.
        turn: Index of the first message that is learned.
        asked: Tokens before that message: what a server sends the model to get it.
    """

    input_ids: Sequence[int]
    spans: list[tuple[int, int]]
    turn: int
    asked: int

    @property
    def labels(self) -> "array[int]":
        """`input_ids` where the loss counts, else `IGNORED`."""
        labels = array("i", (IGNORED,)) * len(self.input_ids)
        for start, end in self.spans:
            labels[start:end] = array("i", self.input_ids[start:end])
        return labels

    @property
    def tokens(self) -> int:
        """Tokens in all."""
        return len(self.input_ids)

    @property
    def longest(self) -> int:
        """Tokens that the model reads at once."""
        return len(self.input_ids)

    @property
    def loss_tokens(self) -> int:
        """Tokens that carry loss."""
        return sum(end - start for start, end in self.spans)


class Renderer:
    """Renders with one tokenizer.

    Args:
        tokenizer: A transformers tokenizer with a chat template.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        added = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
        self._special = added | set(tokenizer.all_special_ids)
        names = sorted((tokenizer.convert_ids_to_tokens(number) for number in self._special), key=len, reverse=True)
        self._special_text = re.compile("|".join(map(re.escape, names)) or r"(?!)")

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Tools = None,
        target: LossTarget = LossTarget.ASSISTANT,
        since: int = 0,
        only: Callable[[Message], bool] | None = None,
    ) -> Rendered:
        """Render a conversation and find what is to be learned in it.

        Args:
            messages: The conversation; the first message is not the assistant's.
            tools: Functions that it offers the model.
            target: Which of the assistant's turns carry loss.
            since: Index of the first message that may carry loss.
            only: Which of these turns carry loss after all; every one when None.

        Raises:
            TemplateError: With the fix.
        """
        learned = _learned(messages, target, since=since, only=only)
        messages = without_marks(messages)
        whole = self._text(messages, tools, generation_prompt=False)
        ids = self._tokens(whole)
        text = _Tokenized(whole, ids, marks=self._marks(whole, ids))
        turns = _learned(messages, target, since=since, only=None) if target is LossTarget.ALL else learned
        said = {index: self._turn(messages, index, tools=tools, whole=text) for index in turns}
        spans = [said[index] for index in learned]
        asked = spans[0][0] if spans else len(ids)
        if target is LossTarget.ALL:
            spans = _between([span for index, span in said.items() if index not in learned], len(ids))
        return Rendered(input_ids=ids, spans=spans, turn=learned[0] if learned else len(messages), asked=asked)

    def render_rows(
        self,
        messages: Sequence[Message],
        *,
        tools: Tools = None,
        target: LossTarget = LossTarget.ASSISTANT,
        only: Callable[[Message], bool] | None = None,
    ) -> list[Rendered]:
        """Render a conversation as one row; or, where the template rewrites earlier turns, as one row a turn.

        The second is what a server reads, which renders the history anew for each turn. Arguments as of `render`.

        Raises:
            TemplateError: With the fix.
        """
        try:
            return [self.render(messages, tools=tools, target=target, only=only)]
        except RewrittenError:
            if target is LossTarget.ALL:
                raise
            turns = _learned(messages, target, since=0, only=only)
            return [self.render(messages[: turn + 1], tools=tools, since=turn) for turn in turns]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, special tokens included."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    def _turn(self, messages: Sequence[Message], index: int, *, tools: Tools, whole: "_Tokenized") -> tuple[int, int]:
        before = self._text(messages[:index], tools, generation_prompt=True)
        until = self._text(messages[: index + 1], tools, generation_prompt=False)
        _require_calls(messages[index], until.removeprefix(before), index=index)
        return self._span(whole, before=before, until=until, index=index)

    def _span(self, whole: "_Tokenized", *, before: str, until: str, index: int) -> tuple[int, int]:
        if not until.startswith(before):
            raise TemplateError(
                f"the chat template puts other text before messages[{index}] than a server does when it asks for it,"
                " so the turn cannot be masked; use a template whose generation prompt is a prefix of the turn"
            )
        if not whole.text.startswith(until):
            raise RewrittenError(
                f"the chat template changes messages[{index}] once more messages follow (as templates do that drop"
                " earlier reasoning); split the row so that only its last message is the assistant's"
            )
        start, end = self._tokens_of_start(whole, before), self._tokens_of_start(whole, until)
        if start is None or end is None:
            raise TemplateError(
                f"messages[{index}] begins or ends with characters that merge into one token with the template's;"
                " remove blank space at the start and end of its content"
            )
        stops = [position for position in range(start, end) if whole.ids[position] in self._special]
        return start, (stops[-1] + 1 if stops else end)

    def _marks(self, text: str, ids: list[int]) -> list[tuple[int, int]]:
        """Return how many characters and how many tokens end with each special token; none where that is not plain."""
        ends = [found.end() for found in self._special_text.finditer(text)]
        tokens = [position + 1 for position, number in enumerate(ids) if number in self._special]
        return list(zip(ends, tokens, strict=True)) if len(ends) == len(tokens) else []

    def _tokens_of_start(self, whole: "_Tokenized", start: str) -> int | None:
        """Return how many tokens a text has that the whole begins with; None where it ends inside a token of the whole.

        Tokenizers cut the text at special tokens first, so only what follows the last of them is tokenized again: the
        time that a conversation takes would grow with the square of its turns otherwise.
        """
        characters, tokens = whole.last_mark(len(start))
        tail = self._tokens(start[characters:])
        end = tokens + len(tail)
        if whole.ids[tokens:end] == tail:
            return end
        # Some tokenizers treat what follows a special token in their own way.
        head = self._tokens(start)
        return len(head) if whole.ids[: len(head)] == head else None

    def _text(self, messages: Sequence[Message], tools: Tools, *, generation_prompt: bool) -> str:
        try:
            text = self._tokenizer.apply_chat_template(
                list(messages), tools=tools, tokenize=False, add_generation_prompt=generation_prompt
            )
        except Exception as error:
            # Templates refuse conversations by raising; jinja wraps nothing, so any exception is the template's word.
            raise TemplateError(f"the chat template refuses the conversation ({error}); change its messages") from error
        return str(text)

    def _tokens(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])


class _Tokenized:
    """A rendered conversation with its tokens.

    Args:
        text: What the template made of it.
        ids: Its tokens.
        marks: How many characters and tokens end with each special token, in order.
    """

    def __init__(self, text: str, ids: list[int], *, marks: list[tuple[int, int]]) -> None:
        self.text = text
        self.ids = ids
        self._marks = marks

    def last_mark(self, characters: int) -> tuple[int, int]:
        """Return the last mark within so many characters; the start of the text where there is none."""
        index = bisect_right(self._marks, characters, key=lambda mark: mark[0])
        return self._marks[index - 1] if index else (0, 0)


def _learned(
    messages: Sequence[Message], target: LossTarget, *, since: int, only: Callable[[Message], bool] | None
) -> list[int]:
    turns = [index for index in range(since, len(messages)) if messages[index]["role"] == "assistant"]
    turns = turns[-1:] if target is LossTarget.LAST_TURN else turns
    return [index for index in turns if only is None or only(messages[index])]


def _between(left_out: Sequence[tuple[int, int]], end: int) -> list[tuple[int, int]]:
    """Return the runs of tokens outside of some; the first token is predicted from nothing, and never in them."""
    bounds = [1, *(bound for span in left_out for bound in span), end]
    runs = zip(bounds[::2], bounds[1::2], strict=True)
    return [(first, last) for first, last in runs if last > first]


def is_optimal(message: Message) -> bool:
    """Return whether a turn is one to learn from: the data does not mark it."""
    return not message.get(MARK)


def _require_calls(message: Message, text: str, *, index: int) -> None:
    """Refuse a template that drops tool calls: the model would learn to say nothing in their place."""
    for call in message.get("tool_calls", ()):
        name = call["function"]["name"]
        if name not in text:
            raise TemplateError(
                f"the chat template leaves out the call of {name} in messages[{index}]; train a model whose template"
                " knows tools, or write the call into content as text"
            )
