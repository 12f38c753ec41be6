"""Intervals for a benchmark's mean and for the paired difference of two benchmarks.

A benchmark has few tasks (8 to 20 in a small suite) and scores that are mostly 0 or 1, often all of them. Bootstrap
and t intervals shrink to a point there (all 0 against all 1 has no spread to resample), so score intervals are used,
with the task as the unit: attempts at one task resemble each other, and more attempts are not more tasks.

- mean: Wilson's score interval (Wilson 1927, J. Am. Stat. Assoc. 22, 209-212) over the scores by task, its ends
  lowered and raised next to 0 and 1 (Brown, Cai and DasGupta 2001, Stat. Sci. 16, 101-133, section 4.1.1), where
  Wilson's covers too little;
- paired difference: Tango's score interval for paired proportions (Tango 1998, Stat. Med. 17, 891-908), with a
  continuity correction of one attempt, so that it never excludes 0 where the exact sign test of the unequal tasks
  would not reject (without it, 4 wins and no loss would be a claim).

Both are exact in form for scores of 0 and 1. Scores between, as several attempts give, vary less; how much less is
measured between tasks and enters as an effective number of tasks (with Wilson's interval: Franco, Little, Louis and
Slud 2019, J. Surv. Stat. Methodol. 7, 334-364), with the correction of Korn and Graubard (1998, Surv. Methodol. 24,
193-201) for the few tasks that it is measured from, in the measure in which it is measured. It is never below the
number of tasks and never above that of attempts. Scores outside [0, 1] get Student's t interval.

Needs scipy.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

CONFIDENCE: Final = 0.95
_SMALL: Final = 50
"""Tasks up to which two successes count as next to the edge; three beyond (Brown, Cai and DasGupta)."""


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


def mean_interval(scores: Sequence[float], confidence: float = CONFIDENCE, *, attempts: float = 1.0) -> Range | None:
    """Return the interval of the mean score over the tasks that these were drawn from.

    Args:
        scores: One score a task, the mean of its attempts; 0 to 1 as a rule.
        confidence: Between 0 and 1.
        attempts: Attempts behind a score, on average.

    Returns:
        None without scores, or with a single score outside [0, 1].
    """
    if not scores:
        return None
    if not all(0 <= score <= 1 for score in scores):
        return _student(scores, confidence)
    mean, z = math.fsum(scores) / len(scores), _quantile(confidence)
    share = _effective_share(scores, spread=mean * (1 - mean), confidence=confidence, attempts=attempts)
    count = len(scores) / share
    centre = (mean + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(mean * (1 - mean) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    low, high = max(0.0, centre - half), min(1.0, centre + half)
    return Range(
        low=min(low, _edge(mean, len(scores), confidence, otherwise=low)),
        high=max(high, 1.0 - _edge(1.0 - mean, len(scores), confidence, otherwise=1.0 - high)),
    )


def compare_paired(
    candidate: Sequence[float], baseline: Sequence[float], confidence: float = CONFIDENCE, *, attempts: float = 1.0
) -> PairedDifference | None:
    """Compare two benchmarks on the same tasks.

    Args:
        candidate: One score a task, the mean of its attempts.
        baseline: Scores of the same tasks in the same order.
        confidence: Between 0 and 1.
        attempts: Attempts behind a score, on average; of the run that has fewer.

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
        spread = (gain + loss) / count - ((gain - loss) / count) ** 2
        share = _effective_share(differences, spread=spread, confidence=confidence, attempts=attempts)
        interval: Range | None = difference_interval(
            gain, loss, count=count, confidence=confidence, share=share, attempts=attempts
        )
        detectable = minimum_detectable(count, confidence, share=share, attempts=attempts)
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


def difference_interval(
    gain: float,
    loss: float,
    *,
    count: int,
    confidence: float = CONFIDENCE,
    share: float = 1.0,
    attempts: float = 1.0,
) -> Range:
    """Return Tango's interval of a paired difference, with continuity correction.

    Args:
        gain: Sum of the positive differences; with scores of 0 and 1, the number of wins.
        loss: Sum of the negative differences, as a positive number.
        count: Number of tasks.
        confidence: Between 0 and 1.
        share: Variance of the differences as a share of what scores of 0 and 1 would have; 1 for those.
        attempts: Attempts behind a score, on average.
    """
    z = _quantile(confidence)
    wins, losses, tasks, step = gain / share, loss / share, count / share, 1.0 / share / attempts
    return Range(
        low=_lower_end(wins, losses, count=tasks, z=z, step=step),
        high=-_lower_end(losses, wins, count=tasks, z=z, step=step),
    )


def minimum_detectable(
    count: int, confidence: float = CONFIDENCE, *, share: float = 1.0, attempts: float = 1.0
) -> float | None:
    """Return the smallest difference whose interval would exclude 0, were it all gain and no loss.

    Args:
        count: Number of tasks.
        confidence: Between 0 and 1.
        share: Variance of the differences, as in `difference_interval`.
        attempts: Attempts behind a score, on average.
    """
    steps = max(1, round(attempts))

    def shown(gain: int) -> bool:
        interval = difference_interval(
            gain / steps, 0.0, count=count, confidence=confidence, share=share, attempts=attempts
        )
        return interval.low > 0

    smallest = bisect_left(range(1, count * steps + 1), True, key=shown) + 1
    return smallest / steps / count if smallest <= count * steps else None


def pass_at_k(attempts: int, solved: int, k: int) -> float:
    """Return the unbiased estimate of the chance that at least one of k attempts at a task solves it.

    Chen et al. 2021, arXiv:2107.03374, section 2.1: 1 - C(n - c, k) / C(n, k).

    Args:
        attempts: Scored attempts, n; at least k.
        solved: Those that solved it, c.
        k: Attempts that a user would make.

    Raises:
        ValueError: k is below 1 or above the number of attempts.
    """
    if not 1 <= k <= attempts:
        raise ValueError(f"k must be 1 to {attempts}, not {k}")
    return 1.0 - math.comb(attempts - solved, k) / math.comb(attempts, k)


def _effective_share(values: Sequence[float], *, spread: float, confidence: float, attempts: float) -> float:
    """Return tasks / effective tasks: 1 for scores of 0 and 1, down to 1 / attempts.

    Args:
        values: One value a task.
        spread: Their variance if they were all at the ends of their range.
        confidence: Between 0 and 1.
        attempts: Attempts behind a value, on average.
    """
    from scipy.stats import t

    count = len(values)
    if count < 2 or spread <= 0:
        return 1.0
    mean = math.fsum(values) / count
    measured = math.fsum((value - mean) ** 2 for value in values) / count
    few = (float(t.ppf(0.5 + confidence / 2, count - 1)) / _quantile(confidence)) ** 2
    share = max(min(1.0, measured / spread), 1.0 / attempts)
    # The correction is for what is measured: nothing is, where the mean alone gives the variance.
    return min(1.0, share * (1.0 + (few - 1.0) * (1.0 - share)))


def _edge(mean: float, count: int, confidence: float, *, otherwise: float) -> float:
    """Return the lower end for a mean next to 0: that of a Poisson count, one-sided."""
    from scipy.stats import chi2

    solved = mean * count
    last = 2 if count <= _SMALL else 3
    if not 1 - 1e-9 <= solved <= last + 1e-9:
        return otherwise
    return float(chi2.ppf(1 - confidence, 2 * solved)) / 2 / count


def _lower_end(gain: float, loss: float, *, count: float, z: float, step: float) -> float:
    from scipy.optimize import brentq

    def excess(delta: float) -> float:
        """How far the observed difference is above what chance explains if the true one is `delta`."""
        a = 2.0 * count
        b = -gain - loss + (2.0 * count - gain + loss) * delta
        c = -loss * delta * (1.0 - delta)
        worse = (math.sqrt(max(0.0, b * b - 4.0 * a * c)) - b) / (2.0 * a)
        variance = max(0.0, count * (2.0 * worse + delta * (1.0 - delta)))
        return gain - loss - step - count * delta - z * math.sqrt(variance)

    observed = (gain - loss) / count
    if excess(-1.0) <= 0:
        return -1.0
    return float(brentq(excess, -1.0, observed, xtol=1e-9))


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
