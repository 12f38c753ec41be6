"""Figures of scored tasks: one place for the runner, the report and the `whetstone` command.

A trial is scored when it has a reward. A void trial (the infrastructure spoiled it) has none and says nothing about
the model: both readings of the mean are kept, over scored trials, and with void trials as 0.
"""

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from whetstone_api.benchmark_result import Interval, PassAtK
from whetstone_api.run_artifact import TaskScore

from whetstone_artifacts.statistics import CONFIDENCE, Range, mean_interval, pass_at_k

DIGITS: Final = 6
"""Decimal places of published figures."""
CONFIDENCES: Final = (0.9, CONFIDENCE, 0.99)
"""Confidences of the intervals that a run publishes."""
SOLVED: Final = 1.0
"""Reward from which a trial counts as solved."""


def task_means(scores: Sequence[TaskScore]) -> dict[str, float]:
    """Return the mean reward of each task over its scored trials; tasks without one are left out."""
    means = {}
    for score in scores:
        rewards = scored_rewards(score)
        if rewards:
            means[score.task] = math.fsum(rewards) / len(rewards)
    return means


def strict_task_means(scores: Sequence[TaskScore]) -> dict[str, float]:
    """Return the mean reward of each task with void trials as 0."""
    return {
        score.task: math.fsum(trial.reward or 0.0 for trial in score.trials) / len(score.trials)
        for score in scores
        if score.trials
    }


def scored_rewards(score: TaskScore) -> list[float]:
    """Return the rewards of a task's scored trials."""
    return [trial.reward for trial in score.trials if trial.reward is not None]


def mean_attempts(scores: Sequence[TaskScore]) -> float:
    """Return the scored trials of a task, on average over the tasks that have one; at least 1."""
    counts = [len(rewards) for score in scores if (rewards := scored_rewards(score))]
    return math.fsum(counts) / len(counts) if counts else 1.0


def mean_intervals(scores: Sequence[TaskScore]) -> list[Interval]:
    """Return the intervals of the mean at each of `CONFIDENCES`; none without scored trials."""
    values, attempts = list(task_means(scores).values()), mean_attempts(scores)
    found = [(level, mean_interval(values, level, attempts=attempts)) for level in CONFIDENCES]
    return [wire_interval(interval, level) for level, interval in found if interval is not None]


def solved_within(scores: Sequence[TaskScore], ks: Sequence[int]) -> list[PassAtK]:
    """Return pass@k, the mean over tasks of the unbiased estimate.

    Args:
        scores: Every task with its trials.
        ks: Numbers of attempts. Tasks with fewer scored trials are left out; a k that no task has is left out.
    """
    found = []
    for k in sorted(set(ks)):
        rewards = [own for score in scores if len(own := scored_rewards(score)) >= k]
        if rewards:
            chances = [pass_at_k(len(own), sum(reward >= SOLVED for reward in own), k) for own in rewards]
            found.append(PassAtK(k=k, value=decimal(math.fsum(chances) / len(chances)), tasks=len(chances)))
    return found


def decimal(value: float) -> str:
    """Return a figure as decimal text of at most `DIGITS` places, without an exponent and without `-0`."""
    text = format(Decimal(str(round(value, DIGITS))).normalize(), "f")
    return "0" if text in ("-0", "0") else text


def wire_interval(interval: Range, confidence: float = CONFIDENCE) -> Interval:
    """Return an interval as the status has it."""
    return Interval(low=decimal(interval.low), high=decimal(interval.high), confidence=decimal(confidence))


def at_confidence(intervals: Sequence[Interval], confidence: float = CONFIDENCE) -> Interval | None:
    """Return the interval of one confidence."""
    return next((one for one in intervals if one.confidence == decimal(confidence)), None)


def mean(values: Sequence[float]) -> float:
    """Return the mean; 0 of nothing."""
    return math.fsum(values) / len(values) if values else 0.0
