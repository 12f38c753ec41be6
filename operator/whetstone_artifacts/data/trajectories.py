"""Trajectories from rows of data and from finished runs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from whetstone_api.run_artifact import TaskScore
from whetstone_api.vocabulary import Reason

from whetstone_artifacts.data.discipline import STRATEGIC, TACTICAL, Trajectory
from whetstone_artifacts.data.formats import FormatError, to_messages
from whetstone_artifacts.data.reading import Read, read_all
from whetstone_artifacts.episodes import read_episodes
from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.figures import SOLVED
from whetstone_artifacts.report.page import read_results


@dataclass(frozen=True, kw_only=True)
class Unread:
    """A conversation that cannot be read.

    Args:
        trial: Harbor's name of its trial.
        problem: Why not.
    """

    trial: str
    problem: str


def read_trajectories(place: Path) -> Iterator[Trajectory]:
    """Yield the trajectories of a place.

    Args:
        place: A folder of a run's results, whose scored trials are taken; or a file of rows.

    Raises:
        ArtifactError: A row is wrong or a pair, or the folder holds no results.
        OSError: It cannot be read.
    """
    if not place.is_dir():
        for read in read_all([place]):
            yield _of_row(read)
        return
    for found in run_trajectories(place, read_results(place).tasks):
        if isinstance(found, Unread):
            raise ArtifactError(Reason.DATASET_INVALID, f"{place}, trial {found.trial}: {found.problem}")
        yield found


def run_trajectories(place: Path, tasks: Sequence[TaskScore]) -> Iterator[Trajectory | Unread]:
    """Yield the conversations of a run's scored trials.

    Args:
        place: Folder of its results.
        tasks: Its tasks with their trials.
    """
    for task in tasks:
        for trial in task.trials:
            for episode in read_episodes(place, trial):
                try:
                    messages = to_messages({"messages": episode.messages})
                except FormatError as error:
                    yield Unread(trial=trial.trial, problem=str(error))
                    continue
                yield Trajectory(task=task.digest, messages=messages, solved=episode.reward >= SOLVED)


def _of_row(read: Read) -> Trajectory:
    if read.example.is_pair:
        raise _wrong(read, "is a pair; name files of conversations")
    phase, todos = read.value.get("phase"), read.value.get("todos")
    if phase not in (None, STRATEGIC, TACTICAL):
        raise _wrong(read, f"phase is {phase!r}; use {STRATEGIC} or {TACTICAL}, or leave it out")
    if todos is not None and (not isinstance(todos, int) or isinstance(todos, bool) or todos < 1):
        raise _wrong(read, f"todos is {todos!r}; give how many there are, or leave it out")
    return Trajectory(
        task=read.example.task or "",
        messages=read.example.messages,
        solved=_solved(read.value.get("success"), read.value.get("reward")),
        phase=phase,
        todos=todos,
    )


def _solved(success: object, reward: object) -> bool | None:
    if isinstance(success, bool):
        return success
    if isinstance(reward, bool):
        return reward
    return reward >= SOLVED if isinstance(reward, int | float) else None


def _wrong(read: Read, problem: str) -> ArtifactError:
    return ArtifactError(Reason.DATASET_INVALID, f"{read.file}, row {read.number}: {problem}")
