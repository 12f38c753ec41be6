"""Whether an answer is right, by rule.

An instance that cannot be answered with the tools that it has wants to hear just that: any reply that says so is right,
and any other is wrong, also one that happens to be true.
"""

import re
import string
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Final

from whetstone_agent.tooluse.instances import Instance

UNABLE: Final = "I cannot answer this with the tools that I have."
"""How the expert, and the instructions to agents, say it."""

_UNABLE: Final = re.compile(
    r"\b(can ?not|can['\u2019]t|could ?n[o'\u2019]t|could not|unable to|not able to|no way to|impossible to)\b"
    r"[^.!?]{0,60}\b(answer|find|access|retriev\w*|determin\w*|provid\w*|look\w*|obtain|get|call|use)\b"
    r"|\b(do not|don['\u2019]t) have (access|a tool|the tool|any tool|permission)"
    r"|\bno (suitable |such )?tools?\b[^.!?]{0,40}\b(available|allowed|offered)\b"
    r"|\bnot (allowed|permitted) to (use|call|search|access|look)\b",
    re.IGNORECASE,
)
_ARTICLES: Final = frozenset({"a", "an", "the"})
_NUMBER: Final = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?|[-+]?\d+(\.\d+)?")
_QUOTES: Final = "\u2018\u2019\u201c\u201d"
_PUNCTUATION: Final = str.maketrans(dict.fromkeys(string.punctuation + _QUOTES, " "))


class ScorerName(StrEnum):
    """How answers are compared."""

    EXACT = "Exact"
    NORMALIZED = "Normalized"
    JUDGE = "Judge"
    """By a model."""


def declines(answer: str) -> bool:
    """Say whether a reply says that it cannot answer for want of tools."""
    return _UNABLE.search(answer) is not None


def exact(given: str, accepted: str) -> bool:
    """Compare to the character, but for blanks around."""
    return given.strip() == accepted.strip()


def normalized(given: str, accepted: str) -> bool:
    """Compare without case, punctuation and articles, and numbers by their value.

    As SQuAD's evaluation does (https://rajpurkar.github.io/SQuAD-explorer/), but that 1,200.0 and 1200 are equal, and
    that 1.5 and 15 are not.
    """
    form = normal_form(accepted)
    return normal_form(given) == form if form else exact(given, accepted)


def normal_form(text: str) -> tuple[str, ...]:
    """Return the words that a comparison looks at."""
    found: list[str] = []
    for token in text.lower().split():
        bare = token.strip(string.punctuation.replace("-", "").replace("+", "") + _QUOTES) or token
        number = _value(bare)
        found += [number] if number is not None else token.translate(_PUNCTUATION).split()
    return tuple(word for word in found if word not in _ARTICLES)


def _value(token: str) -> str | None:
    if not _NUMBER.fullmatch(token):
        return None
    try:
        return format(Decimal(token.replace(",", "")).normalize(), "f")
    except InvalidOperation:
        return None


SCORERS: Final[dict[ScorerName, Callable[[str, str], bool]]] = {
    ScorerName.EXACT: exact,
    ScorerName.NORMALIZED: normalized,
}


def right(instance: Instance, answer: str, scorer: ScorerName) -> bool:
    """Say whether an answer is what the instance wants to hear.

    Args:
        instance: The instance.
        answer: What the agent says at the end.
        scorer: How answers are compared.
    """
    if not instance.answerable:
        return declines(answer)
    return any(SCORERS[scorer](answer, accepted) for accepted in instance.answers)
