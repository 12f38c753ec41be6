"""Runs side by side: who scored higher on which task, and whether a verdict may be read from it."""

from collections.abc import Sequence
from dataclasses import dataclass

from whetstone_api.run_artifact import Comparability

from whetstone_artifacts.report.view import RunView, words
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
    differing: list[str]
    """What differs beyond the model."""
    verdict: str
    """The sentence of the run's own comparison; empty where it was compared with another run or with none."""


def pairs(runs: Sequence[RunView], baseline: RunView) -> list[Pair]:
    """Return every other run beside the baseline."""
    return [_pair(run, baseline) for run in runs if run is not baseline]


def _pair(run: RunView, baseline: RunView) -> Pair:
    differences = [
        task.mean - other.mean
        for name, task in run.tasks.items()
        if task.mean is not None and (other := baseline.tasks.get(name)) is not None and other.mean is not None
    ]
    measured = run.artifact.comparison
    ours = measured is not None and measured.baseline == baseline.name
    return Pair(
        run=run,
        baseline=baseline,
        tasks=len(differences),
        difference=round(sum(differences) / len(differences), 6) if differences else None,
        wins=sum(value > 0 for value in differences),
        losses=sum(value < 0 for value in differences),
        ties=sum(value == 0 for value in differences),
        differing=_differing(run.artifact.comparability, baseline.artifact.comparability),
        verdict=verdict_sentence(measured) if measured is not None and ours else "",
    )


def _differing(here: Comparability, there: Comparability) -> list[str]:
    mine, theirs = here.model_dump(by_alias=True), there.model_dump(by_alias=True)
    return [words(name) for name in mine if mine[name] != theirs[name]]
