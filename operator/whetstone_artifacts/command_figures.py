"""How an agent came along, from the trajectories of a run's scored trials: commands, errors, turns.

Whether a command succeeded is known where its output begins with `Exit code: N`, as our own agent's does. Screens of a
terminal do not say it: an agent that types into one has turns only.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from whetstone_api.benchmark_result import CommandFigures
from whetstone_api.run_artifact import TaskScore, TrialScore

from whetstone_artifacts.figures import SOLVED, decimal
from whetstone_artifacts.report.trials import EXIT_CODE, find_trials, folders
from whetstone_artifacts.report.untrusted import items, mapping, read_json


@dataclass(frozen=True, kw_only=True)
class Walk:
    """The commands of one trial.

    Args:
        score: The trial.
        succeeded: Whether each of its commands did, in their order; of those that tell.
    """

    score: TrialScore
    succeeded: list[bool]


def command_figures(results: Path, tasks: Sequence[TaskScore]) -> CommandFigures | None:
    """Return the figures of a run; None without a scored trial.

    Args:
        results: Folder of the results.
        tasks: Its tasks with their trials.
    """
    scored = [trial for task in tasks for trial in task.trials if trial.reward is not None]
    places = find_trials(results, {trial.trial for trial in scored})
    return figures_of([Walk(score=one, succeeded=_walked(places.get(one.trial))) for one in scored])


def figures_of(walks: Sequence[Walk]) -> CommandFigures | None:
    """Return the figures of trials; one that no trial tells is absent. None without trials."""
    if not walks:
        return None
    commands = [one for walk in walks for one in walk.succeeded]
    after = [then for walk in walks for now, then in pairwise(walk.succeeded) if not now]
    stumbled = [walk for walk in walks if not all(walk.succeeded)]
    turns = [walk.score.turns for walk in walks if _solved(walk.score) and walk.score.turns is not None]
    return CommandFigures(
        commands=len(commands),
        success=_share(commands),
        recovery=_share(after),
        solved_after_error=_share([_solved(walk.score) for walk in stumbled]),
        turns_to_solve=decimal(median(turns)) if turns else None,
    )


def _solved(score: TrialScore) -> bool:
    return score.reward is not None and score.reward >= SOLVED


def _share(parts: Sequence[bool]) -> str | None:
    return decimal(sum(parts) / len(parts)) if parts else None


def _walked(folder: Path | None) -> list[bool]:
    if folder is None:
        return []
    return [code == 0 for part in (folder, *folders(folder / "steps")) for code in _exit_codes(part, folder)]


def _exit_codes(part: Path, folder: Path) -> Iterator[int]:
    trajectory = read_json(part / "agent" / "trajectory.json", below=folder)
    for step in map(mapping, items(trajectory.get("steps"))):
        for result in map(mapping, items(mapping(step.get("observation")).get("results"))):
            content = result.get("content")
            found = EXIT_CODE.match(content) if isinstance(content, str) else None
            if found is not None:
                yield int(found[1])
