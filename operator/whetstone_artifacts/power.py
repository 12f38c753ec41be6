"""How many tasks and attempts a wanted difference needs, before a run is paid for.

The paired difference of two runs has a variance of two parts: how much the effect differs between tasks, which only
more tasks bring down, and how much attempts at one task differ, which more attempts bring down too. With n tasks and
a attempts each, a true difference d is shown with the wanted power where

    d - 1 / (n a) >= (z_confidence + z_power) sqrt((effect² + 2 within / a) / n)

the usual normal approximation (Cohen 1988, Statistical Power Analysis, chapter 2; 1 / (n a) is the continuity
correction of the interval that decides, `whetstone_artifacts.statistics`). Tests simulate it. Needs scipy.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from whetstone_api.run_artifact import TaskScore

from whetstone_artifacts.figures import mean, scored_rewards, task_means
from whetstone_artifacts.statistics import CONFIDENCE

MOST_TASKS: Final = 100_000
TASK_SPREAD: Final = 0.3
"""Standard deviation of the chance to solve a task, from task to task, where nothing is known."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """What a difference has to be told from."""

    within: float
    """Variance of one attempt's reward around its task's mean, averaged over tasks."""
    basis: str
    """Where it comes from, for people."""


def assumed_spread(average: float, task_spread: float = TASK_SPREAD) -> Spread:
    """Return the spread of rewards of 0 and 1.

    Args:
        average: Mean reward that is expected.
        task_spread: Standard deviation of the chance to solve a task, from task to task.
    """
    within = max(0.0, average * (1 - average) - task_spread**2)
    return Spread(within=within, basis=f"assumed: mean {average:g}, tasks spread by {task_spread:g}")


def measured_spread(scores: Sequence[TaskScore], task_spread: float = TASK_SPREAD) -> Spread | None:
    """Return the spread in a finished run; from its mean where no task has two scored trials. None: nothing is scored.

    Args:
        scores: Its tasks.
        task_spread: As in `assumed_spread`, for a run of single attempts.
    """
    several = [rewards for score in scores if len(rewards := scored_rewards(score)) > 1]
    if several:
        attempts = sum(map(len, several))
        squares = math.fsum((reward - mean(own)) ** 2 for own in several for reward in own)
        within = squares / (attempts - len(several))
        return Spread(within=within, basis=f"measured on {attempts} attempts at {len(several)} tasks")
    means = list(task_means(scores).values())
    if not means:
        return None
    assumed = assumed_spread(min(1.0, max(0.0, mean(means))), task_spread)
    return Spread(within=assumed.within, basis=f"{assumed.basis} (the run has single attempts)")


def tasks_needed(
    difference: float,
    *,
    attempts: int,
    spread: Spread,
    effect_spread: float,
    power: float = 0.8,
    confidence: float = CONFIDENCE,
) -> int | None:
    """Return the fewest tasks that show a difference with the wanted power; None for more than `MOST_TASKS`.

    Args:
        difference: True difference of the means, above 0.
        attempts: Attempts at each task.
        spread: Of both runs.
        effect_spread: Standard deviation of the difference from task to task.
        power: Chance of a verdict other than Inconclusive.
        confidence: Of the verdict's interval.
    """
    from scipy.stats import norm

    quantiles = float(norm.ppf(0.5 + confidence / 2) + norm.ppf(power))
    variance = effect_spread**2 + 2 * spread.within / attempts

    def shown(tasks: int) -> bool:
        return difference - 1 / (tasks * attempts) >= quantiles * math.sqrt(variance / tasks)

    needed = bisect_left(range(1, MOST_TASKS + 1), True, key=shown) + 1
    return None if needed > MOST_TASKS else max(needed, 1)
