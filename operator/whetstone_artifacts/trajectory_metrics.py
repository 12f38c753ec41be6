"""Figures that are read from trajectories: commands that succeeded, turns to solve, recovery after an error.

A trajectory is what an agent writes down, in Harbor's Agent Trajectory Interchange Format (ATIF). A command is a tool
call that runs a text in a shell. Its exit code is known where the agent records it, as the number `exit_code` in the
`extra` of the observation that answers the call; it is never guessed from what a terminal shows.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from whetstone_api.benchmark_result import TrajectoryFigures
from whetstone_api.run_artifact import TaskScore, TrialScore

from whetstone_artifacts.figures import SOLVED, decimal, mean
from whetstone_artifacts.report.trials import folders
from whetstone_artifacts.report.untrusted import items, mapping, read_json

TRAJECTORY: Final = "trajectory.json"
EXIT_CODE: Final = "exit_code"
"""Key of an observation's `extra` that holds a command's exit code."""
_TEXTS: Final = ("command", "keystrokes", "cmd")
"""Arguments of tool calls that are run in a shell: of our agent, of terminus-2, of others."""


@dataclass(frozen=True, kw_only=True)
class CommandCounts:
    """Commands of a trial."""

    run: int
    known: int
    """Of those, with an exit code on record."""
    failed: int
    """Of those, with another exit code than 0."""


def with_commands(scores: Sequence[TaskScore], jobs: Sequence[Path]) -> list[TaskScore]:
    """Return trials with their commands counted; one that left no trajectory stays as it is.

    Args:
        scores: Every task with its trials.
        jobs: Harbor's job folders, in which the trials' folders lie.
    """
    return [
        score.model_copy(update={"trials": [_with_commands(trial, jobs) for trial in score.trials]}) for score in scores
    ]


def _with_commands(trial: TrialScore, jobs: Sequence[Path]) -> TrialScore:
    counts = next((found for job in jobs if (found := read_commands(job / trial.trial)) is not None), None)
    if counts is None:
        return trial
    counted = {"commands": counts.run, "known_commands": counts.known, "failed_commands": counts.failed}
    return trial.model_copy(update=counted)


def read_commands(folder: Path) -> CommandCounts | None:
    """Count the commands of a trial's trajectory, or of the trajectories of all its steps; None where there is none."""
    read = [read_json(part / "agent" / TRAJECTORY, below=folder) for part in (folder, *folders(folder / "steps"))]
    steps = [mapping(step) for one in read for step in items(one.get("steps"))]
    return count_commands(steps) if steps else None


def count_commands(steps: Sequence[Mapping[str, Any]]) -> CommandCounts:
    """Count the commands of a trajectory.

    Args:
        steps: In ATIF.
    """
    run, codes = 0, []
    for step in steps:
        calls = [mapping(call) for call in items(step.get("tool_calls"))]
        commands = [call.get("tool_call_id") for call in calls if _runs_text(call)]
        run += len(commands)
        codes += list(_codes(step, commands, alone=len(calls) == 1))
    return CommandCounts(run=run, known=len(codes), failed=sum(code != 0 for code in codes))


def trajectory_figures(scores: Sequence[TaskScore]) -> TrajectoryFigures | None:
    """Return the figures over a run's scored trials; None where no agent wrote anything down that they need.

    Args:
        scores: Every task with its trials.
    """
    scored = [trial for score in scores for trial in score.trials if trial.reward is not None]
    known = [trial for trial in scored if trial.known_commands]
    solved = [trial.turns for trial in scored if _solved(trial) and trial.turns is not None]
    erring = [trial for trial in known if trial.failed_commands]
    commands = sum(trial.commands or 0 for trial in scored)
    if not commands and not solved:
        return None
    return TrajectoryFigures(
        commands=commands,
        known_commands=sum(trial.known_commands or 0 for trial in known),
        command_success=_mean([1 - (trial.failed_commands or 0) / (trial.known_commands or 1) for trial in known]),
        command_trials=len(known),
        turns_to_solve=_mean(solved),
        solved_trials=len(solved),
        recovery=_mean([float(_solved(trial)) for trial in erring]),
        failed_command_trials=len(erring),
    )


def _runs_text(call: Mapping[str, Any]) -> bool:
    arguments = mapping(call.get("arguments"))
    return any(isinstance(text := arguments.get(name), str) and text.strip() for name in _TEXTS)


def _codes(step: Mapping[str, Any], commands: Sequence[object], *, alone: bool) -> Iterator[int]:
    """Yield the exit codes on record of a step's commands, one for each at most.

    Args:
        step: In ATIF.
        commands: Ids of its calls that are commands.
        alone: The step has one call, so that an answer without an id belongs to it.
    """
    left = list(commands)
    for result in map(mapping, items(mapping(step.get("observation")).get("results"))):
        code = mapping(result.get("extra")).get(EXIT_CODE)
        call = result.get("source_call_id") or (commands[0] if alone and commands else None)
        if isinstance(code, int) and not isinstance(code, bool) and call in left:
            left.remove(call)
            yield code


def _solved(trial: TrialScore) -> bool:
    return trial.reward is not None and math.isfinite(trial.reward) and trial.reward >= SOLVED


def _mean(values: Sequence[float]) -> str | None:
    return decimal(mean(values)) if values else None
