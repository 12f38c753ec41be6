"""Figures over rendered rows, counted one by one. Holds 4 bytes a row."""

import math
from array import array
from collections.abc import Sequence
from decimal import Decimal

import numpy as np
from whetstone_api.training_data import Lengths

from whetstone_trainer.render import Rendered

SHARES = (Decimal("0.5"), Decimal("0.9"), Decimal("0.99"))


class Figures:
    """Counts of the rows of one side: those that are learned, or those that are held out."""

    def __init__(self) -> None:
        self.rows = 0
        self.tokens = 0
        self.loss_tokens = 0
        self._lengths = array("I")

    def add(self, rendered: Rendered) -> None:
        """Count a row."""
        self.rows += 1
        self.tokens += rendered.tokens
        self.loss_tokens += rendered.loss_tokens
        self._lengths.append(rendered.longest)

    @property
    def longest(self) -> int:
        """Tokens of the longest row; 0 without rows."""
        return max(self._lengths, default=0)

    def lengths(self) -> Lengths:
        """Return lengths that shares of the rows do not exceed; there is at least one row."""
        p50, p90, p99 = nearest_ranks(self._lengths, SHARES)
        return Lengths(p50=p50, p90=p90, p99=p99)


def nearest_ranks(values: array[int], shares: Sequence[Decimal]) -> list[int]:
    """Return for each share the least value that so many of the values do not exceed (nearest-rank percentile).

    Args:
        values: At least one.
        shares: Each above 0 and at most 1.
    """
    ranks = [math.ceil(len(values) * share) - 1 for share in shares]
    ordered = np.partition(np.frombuffer(values, dtype=values.typecode), ranks)
    return [int(ordered[rank]) for rank in ranks]
