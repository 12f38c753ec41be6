"""Preference pairs: rows with a `chosen` and a `rejected` answer to one prompt.

    {"prompt": "…", "chosen": "…", "rejected": "…"}        each also as one message or a list of them
    {"messages": […], "chosen": {…}, "rejected": {…}}      also `conversations`, as ShareGPT's files have it
    {"chosen": [prompt…, …], "rejected": [prompt…, …]}     two conversations; the prompt is how both begin

Whatever the form, only the turns of the assistant after the prompt are scored; what its tools answer never is. Pure.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whetstone_api.jobs import TrainingConfig
from whetstone_api.training_preference import Granularity, PreferenceSpec
from whetstone_api.training_settings import Method

from whetstone_trainer.formats import FORMS, MARK, FormatError, Message, to_turns, without_marks
from whetstone_trainer.render import Rendered, Renderer, RewrittenError, TemplateError, Tools, is_optimal

SIDES = ("chosen", "rejected")
PAIRS = "pairs/1"
"""How pairs are read and masked (this module); another way is another recipe."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two ways to go on from one prompt.

    Args:
        prompt: Messages that both share.
        chosen: What follows in the better one.
        rejected: What follows in the worse one.
    """

    prompt: list[Message]
    chosen: list[Message]
    rejected: list[Message]


@dataclass(frozen=True, kw_only=True)
class RenderedPair(Rendered):
    """A pair as the model reads it: the chosen side is the row itself.

    Args:
        rejected: The rejected side.
    """

    rejected: Rendered

    @property
    def rejected_ids(self) -> list[int]:
        """Token ids of the rejected side."""
        return self.rejected.input_ids

    @property
    def rejected_labels(self) -> list[int]:
        """Labels of the rejected side."""
        return self.rejected.labels

    @property
    def tokens(self) -> int:
        """Tokens of both sides."""
        return super().tokens + self.rejected.tokens

    @property
    def longest(self) -> int:
        """Tokens of the longer side."""
        return max(super().longest, self.rejected.longest)

    @property
    def loss_tokens(self) -> int:
        """Tokens of both sides that are scored."""
        return super().loss_tokens + self.rejected.loss_tokens


def preference_of(config: TrainingConfig) -> PreferenceSpec | None:
    """Return how the job compares pairs; None for a job that learns from conversations."""
    if config.method is not Method.DPO:
        return None
    return config.preference or PreferenceSpec()


def to_pair(value: Mapping[str, Any], granularity: Granularity) -> Pair:
    """Return the pair that a row holds, checked.

    Args:
        value: The row.
        granularity: What a pair may compare.

    Raises:
        FormatError: With the place inside the row, and the fix.
    """
    missing = [side for side in SIDES if side not in value]
    if missing:
        raise FormatError(f"has no `{missing[0]}`; method DPO learns from pairs of `chosen` and `rejected`")
    pair = _split(value)
    if not pair.prompt or all(message["role"] == "system" for message in pair.prompt):
        raise FormatError("`chosen` and `rejected` answer no common question; begin both with it, or give a `prompt`")
    if without_marks(pair.chosen) == without_marks(pair.rejected):
        raise FormatError("`chosen` and `rejected` are the same, so neither is better; remove the row")
    for side, messages in (("chosen", pair.chosen), ("rejected", pair.rejected)):
        _check_side(side, messages, granularity)
    return pair


def render_pair(renderer: Renderer, pair: Pair, *, tools: Tools, mask_suboptimal: bool = False) -> RenderedPair:
    """Render both sides and find what is scored in them.

    Args:
        renderer: Renders with the model's template.
        pair: The pair.
        tools: Functions that it offers the model.
        mask_suboptimal: Raise no turn that is marked; of a rejected side with marks, lower nothing but these.

    Raises:
        TemplateError: With the side and the fix.
    """
    wanted: dict[str, Callable[[Message], bool]] = {}
    if mask_suboptimal:
        wanted["chosen"] = is_optimal
        if any(MARK in message for message in pair.rejected):
            wanted["rejected"] = _is_suboptimal
    rendered = {}
    for side, messages in (("chosen", pair.chosen), ("rejected", pair.rejected)):
        try:
            found = renderer.render(
                [*pair.prompt, *messages], tools=tools, since=len(pair.prompt), only=wanted.get(side)
            )
        except RewrittenError as error:
            raise TemplateError(
                f"`{side}`: the chat template writes a turn otherwise once more messages follow, so that a trajectory"
                " cannot be scored at once; make pairs of single turns (preference.granularity Step)"
            ) from error
        except TemplateError as error:
            raise TemplateError(f"`{side}`, with the prompt before it: {error}") from error
        if not found.loss_tokens:
            raise TemplateError(
                f"`{side}` has no token to score; write an answer that is not marked, or remove the row"
            )
        rendered[side] = found
    chosen = rendered["chosen"]
    if chosen.input_ids == rendered["rejected"].input_ids:
        raise TemplateError("`chosen` and `rejected` are the same once rendered; remove the row")
    rejected = rendered["rejected"]
    return RenderedPair(
        input_ids=chosen.input_ids, spans=chosen.spans, turn=chosen.turn, asked=chosen.asked, rejected=rejected
    )


def _is_suboptimal(message: Message) -> bool:
    return not is_optimal(message)


def _split(value: Mapping[str, Any]) -> Pair:
    chosen, rejected = (to_turns(value, side, role="assistant") for side in SIDES)
    forms = [form for form in FORMS if form in value]
    if len(forms) > 1:
        raise FormatError(f"has {' and '.join(forms)}; give the prompt once")
    prompt = to_turns(value, forms[0], role="user") if forms else []
    shared = _shared(chosen, rejected)
    if not forms:
        if isinstance(value["chosen"], str) or isinstance(value["rejected"], str):
            raise FormatError("has no `prompt`; add the question that `chosen` and `rejected` answer")
        prompt = chosen[:shared]
    elif shared < len(prompt) or without_marks(chosen[: len(prompt)]) != without_marks(prompt):
        return Pair(prompt=prompt, chosen=chosen, rejected=rejected)
    # Both sides repeat the prompt, as files do that keep whole conversations beside it.
    start = len(prompt)
    return Pair(prompt=prompt, chosen=chosen[start:], rejected=rejected[start:])


def _shared(one: Sequence[Message], other: Sequence[Message]) -> int:
    """Return how many messages two lists have in common at their start."""
    pairs = zip(without_marks(one), without_marks(other), strict=False)
    return next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _check_side(side: str, messages: Sequence[Message], granularity: Granularity) -> None:
    turns = sum(message["role"] == "assistant" for message in messages)
    if not turns:
        raise FormatError(f"`{side}` has no turn of the assistant after the prompt; add its answer or remove the row")
    if granularity is Granularity.STEP and len(messages) != 1:
        raise FormatError(
            f"`{side}` has {len(messages)} messages after the prompt, and preference.granularity Step compares one"
            " turn of the assistant; set it to Trajectory, or cut the row after that turn"
        )
