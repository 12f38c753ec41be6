"""Runs side by side: who scored higher on which task, and what may be read from it.

The verdict is that of the operator's own comparison, computed from the two folders.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from whetstone_artifacts.comparison import compare
from whetstone_artifacts.report.view import RunView
from whetstone_artifacts.report.words import verdict_sentence


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A run beside the baseline of the page."""

    run: RunView
    baseline: RunView
    tasks: int
    """Tasks that both have a score of."""
    difference: float | None
    """Mean of the differences by task."""
    wins: int
    losses: int
    ties: int
    verdict: str
    """What may be read from it, in a sentence."""


def pairs(runs: Sequence[RunView], baseline: RunView) -> list[Pair]:
    """Return every other run beside the baseline."""
    return [_pair(run, baseline) for run in runs if run is not baseline]


def _pair(run: RunView, baseline: RunView) -> Pair:
    differences = [
        task.mean - other.mean
        for name, task in run.tasks.items()
        if task.mean is not None and (other := baseline.tasks.get(name)) is not None and other.mean is not None
    ]
    return Pair(
        run=run,
        baseline=baseline,
        tasks=len(differences),
        difference=round(sum(differences) / len(differences), 6) if differences else None,
        wins=sum(value > 0 for value in differences),
        losses=sum(value < 0 for value in differences),
        ties=sum(value == 0 for value in differences),
        verdict=_verdict(run, baseline),
    )


def _verdict(run: RunView, baseline: RunView) -> str:
    if run.artifact.spoiled is not None:
        return f"Nothing: {run.name} is not valid, {run.artifact.spoiled}."
    found = compare(
        scores=run.artifact.tasks,
        measured=run.artifact.comparability,
        baseline=baseline.artifact,
        baseline_name=baseline.name,
    )
    return verdict_sentence(found)
