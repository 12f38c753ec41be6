"""Agreement of two raters.

Cohen's kappa: J. Cohen, A coefficient of agreement for nominal scales, Educational and Psychological Measurement 20
(1960), 37 to 46.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from fractions import Fraction


def agreement(pairs: Sequence[tuple[Hashable, Hashable]]) -> float | None:
    """Return the share of pairs whose two ratings are equal; None of nothing."""
    return float(_observed(pairs)) if pairs else None


def cohens_kappa(pairs: Sequence[tuple[Hashable, Hashable]]) -> float | None:
    """Return agreement beyond chance, 1 at most; None where chance alone gives full agreement, or of nothing.

    Args:
        pairs: The ratings of each thing, in the order of the two raters.
    """
    if not pairs:
        return None
    ones, others = Counter(one for one, _ in pairs), Counter(other for _, other in pairs)
    chance = Fraction(sum(count * others[rating] for rating, count in ones.items()), len(pairs) ** 2)
    return None if chance == 1 else float((_observed(pairs) - chance) / (1 - chance))


def _observed(pairs: Sequence[tuple[Hashable, Hashable]]) -> Fraction:
    return Fraction(sum(one == other for one, other in pairs), len(pairs))
