"""Intervals for a benchmark's mean and for the paired difference of two benchmarks.

A benchmark has few tasks (8 to 20 in a small suite) and scores that are mostly 0 or 1, often all of them. Bootstrap
and t intervals shrink to a point there (all 0 against all 1 has no spread to resample), so score intervals are used:

- mean: Wilson's score interval (Wilson 1927, J. Am. Stat. Assoc. 22) over the scores by task;
- paired difference: Tango's score interval for paired proportions (Tango 1998, Stat. Med. 17, 891-908), with a
  continuity correction of one task, so that it never excludes 0 where the exact sign test of the unequal tasks would
  not reject (without it, 4 wins and no loss would be a claim).

Both are exact in form for scores of 0 and 1. For scores between (several attempts a task) they are conservative: among
all distributions on [0, 1] with a given mean, the one on {0, 1} has the largest variance, and the same holds for
differences on [-1, 1] with given positive and negative parts and the distribution on {-1, 0, 1}. Scores outside [0, 1]
get Student's t interval.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

CONFIDENCE: Final = 0.95
_CORRECTION: Final = 1.0
"""Continuity correction of the paired interval, in tasks."""


@dataclass(frozen=True, kw_only=True)
class Range:
    """An interval, ends included."""

    low: float
    high: float

    def excludes(self, value: float) -> bool:
        """Say whether `value` lies outside."""
        return value < self.low or value > self.high


@dataclass(frozen=True, kw_only=True)
class PairedDifference:
    """Two benchmarks, compared task by task."""

    difference: float
    """Mean of candidate minus baseline."""
    interval: Range
    wins: int
    """Tasks on which the candidate scored higher."""
    losses: int
    ties: int
    minimum_detectable: float | None
    """Smallest difference that would have been told from 0; absent when there are too few tasks for any."""


def mean_interval(scores: Sequence[float], confidence: float = CONFIDENCE) -> Range | None:
    """Return the interval of the mean score.

    Args:
        scores: One score a task, 0 to 1 as a rule.
        confidence: Between 0 and 1.

    Returns:
        None without scores, or with a single score outside [0, 1].
    """
    if not scores:
        return None
    if not all(0 <= score <= 1 for score in scores):
        return _student(scores, confidence)
    count, mean, z = len(scores), math.fsum(scores) / len(scores), _quantile(confidence)
    centre = (mean + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(mean * (1 - mean) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return Range(low=max(0.0, centre - half), high=min(1.0, centre + half))


def compare_paired(
    candidate: Sequence[float], baseline: Sequence[float], confidence: float = CONFIDENCE
) -> PairedDifference | None:
    """Compare two benchmarks on the same tasks.

    Args:
        candidate: One score a task.
        baseline: Scores of the same tasks in the same order.
        confidence: Between 0 and 1.

    Returns:
        None where no interval exists (no tasks, or one task with a score outside [0, 1]).

    Raises:
        ValueError: The two differ in length.
    """
    differences = [new - old for new, old in zip(candidate, baseline, strict=True)]
    if not differences:
        return None
    count = len(differences)
    if all(0 <= score <= 1 for score in (*candidate, *baseline)):
        gain = math.fsum(value for value in differences if value > 0)
        loss = -math.fsum(value for value in differences if value < 0)
        interval: Range | None = difference_interval(gain, loss, count=count, confidence=confidence)
        detectable = _minimum_detectable(count, confidence)
    else:
        interval, detectable = _student(differences, confidence), None
    if interval is None:
        return None
    return PairedDifference(
        difference=math.fsum(differences) / count,
        interval=interval,
        wins=sum(value > 0 for value in differences),
        losses=sum(value < 0 for value in differences),
        ties=sum(value == 0 for value in differences),
        minimum_detectable=detectable,
    )


def difference_interval(gain: float, loss: float, *, count: int, confidence: float = CONFIDENCE) -> Range:
    """Return Tango's interval of a paired difference, with continuity correction.

    Args:
        gain: Sum of the positive differences; with scores of 0 and 1, the number of wins.
        loss: Sum of the negative differences, as a positive number.
        count: Number of tasks.
        confidence: Between 0 and 1.
    """
    z = _quantile(confidence)
    return Range(low=_lower_end(gain, loss, count=count, z=z), high=-_lower_end(loss, gain, count=count, z=z))


def _lower_end(gain: float, loss: float, *, count: int, z: float) -> float:
    from scipy.optimize import brentq

    def excess(delta: float) -> float:
        """How far the observed difference is above what chance explains if the true one is `delta`."""
        a = 2.0 * count
        b = -gain - loss + (2.0 * count - gain + loss) * delta
        c = -loss * delta * (1.0 - delta)
        worse = (math.sqrt(max(0.0, b * b - 4.0 * a * c)) - b) / (2.0 * a)
        variance = max(0.0, count * (2.0 * worse + delta * (1.0 - delta)))
        return gain - loss - _CORRECTION - count * delta - z * math.sqrt(variance)

    observed = (gain - loss) / count
    if excess(-1.0) <= 0:
        return -1.0
    return float(brentq(excess, -1.0, observed, xtol=1e-9))


def _minimum_detectable(count: int, confidence: float) -> float | None:
    z = _quantile(confidence)
    for wins in range(1, count + 1):
        if _lower_end(wins, 0.0, count=count, z=z) > 0:
            return wins / count
    return None


def _quantile(confidence: float) -> float:
    from scipy.stats import norm

    return float(norm.ppf(0.5 + confidence / 2))


def _student(values: Sequence[float], confidence: float) -> Range | None:
    from scipy.stats import t

    count = len(values)
    if count < 2:
        return None
    mean = math.fsum(values) / count
    error = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1) / count)
    half = float(t.ppf(0.5 + confidence / 2, count - 1)) * error
    return Range(low=mean - half, high=mean + half)
