"""Preference pairs: rows with a `chosen` and a `rejected` answer to one prompt.

    {"prompt": "…", "chosen": "…", "rejected": "…"}        each also as one message or a list of them
    {"messages": […], "chosen": {…}, "rejected": {…}}      also `conversations`, as ShareGPT's files have it
    {"chosen": [prompt…, …], "rejected": [prompt…, …]}     two conversations; the prompt is how both begin

Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whetstone_api.training_preference import Granularity

from whetstone_artifacts.data.formats import FORMS, FormatError, Message, to_turns, without_marks

SIDES = ("chosen", "rejected")


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


def fork(one: Sequence[Message], other: Sequence[Message]) -> int | None:
    """Return the turn of the assistant at which two conversations part; None where one only stops earlier."""
    part = next((n for n, (here, there) in enumerate(zip(one, other, strict=False)) if here != there), None)
    while part and not one[part]["role"] == other[part]["role"] == "assistant":
        part -= 1
    return part or None


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
