"""How disciplined the agent of a run worked, from the conversations of its scored trials."""

import logging
from pathlib import Path

from whetstone_api.benchmark_discipline import DisciplineFigures
from whetstone_api.jobs import RunConfig
from whetstone_api.run_artifact import RunArtifact, TaskScore
from whetstone_artifacts.data.discipline import Figures, Trajectory, figures_of, token_change
from whetstone_artifacts.data.trajectories import Unread, run_trajectories
from whetstone_artifacts.figures import decimal

log = logging.getLogger(__name__)


def with_discipline(artifact: RunArtifact, config: RunConfig, baseline: RunArtifact | None) -> RunArtifact:
    """Return a run with the figures that `spec.discipline` asks for; without those of an earlier run's rules.

    Args:
        artifact: The run, whose results lie at the configuration's output.
        config: What was asked for.
        baseline: The run that tokens are set beside.
    """
    rules = config.discipline
    if rules is None:
        results = artifact.results.model_copy(update={"discipline": None})
        return artifact.model_copy(update={"results": results, "discipline": {}})
    ours, unread = _read(Path(config.output_path), artifact.tasks)
    change = None
    if baseline is not None and config.baseline_path is not None:
        theirs, _ = _read(Path(config.baseline_path), baseline.tasks)
        change = token_change(ours, theirs)
    figures, rungs = figures_of(ours, rules)
    told = _told(figures).model_copy(update={"unread": unread, "token_change": _text(change)})
    return artifact.model_copy(
        update={
            "results": artifact.results.model_copy(update={"discipline": told}),
            "discipline": {rung.value: _told(one) for rung, one in rungs.items()},
        }
    )


def _read(place: Path, tasks: list[TaskScore]) -> tuple[list[Trajectory], int]:
    """Return the trajectories of a run, and how many could not be read."""
    found, unread = [], 0
    for one in run_trajectories(place, tasks):
        if isinstance(one, Unread):
            unread += 1
            log.warning("the conversation of trial %s is in no figure of discipline: %s", one.trial, one.problem)
        else:
            found.append(one)
    return found, unread


def _told(figures: Figures) -> DisciplineFigures:
    return DisciplineFigures(
        trajectories=figures.counts.trajectories,
        todo_completion=_text(figures.todo_completion),
        extra_tokens=_text(figures.extra_tokens),
        phase_adherence=_text(figures.phase_adherence),
        success=_text(figures.success),
        tokens_per_task=_text(figures.tokens_per_task),
    )


def _text(value: float | None) -> str | None:
    return None if value is None else decimal(value)
