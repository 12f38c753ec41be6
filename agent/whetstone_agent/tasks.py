"""The tasks that a run is about."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from whetstone_artifacts.tasks.folder import tasks_digest


@dataclass(frozen=True, kw_only=True)
class ScoredTask:
    """What a run gives a score for."""

    name: str
    """Name of its folder; of an instance, its id."""
    digest: str
    """Content digest."""
    identity: str
    """What training rows call it: its `task_digest`, or else the content digest; of an instance, the question's."""
    tags: tuple[str, ...] = ()
    """What it is tagged with."""


@dataclass(frozen=True, kw_only=True)
class AdmittedTask(ScoredTask):
    """A Harbor task that can run here."""

    path: Path
    image: str
    """Image of the agent's container, as it is pulled."""
    seconds: float
    """Longest time that a trial of it may take, start of the pod and verification included."""
    steps: int = 1
    """How many steps it has."""
    images: Mapping[str, str] = field(default_factory=dict)
    """Every image that a trial pulls, by the folder in the task that its container belongs to (`environment`)."""
    mapped: Mapping[str, str] = field(default_factory=dict)
    """The images that a map replaced, by the reference that the task names."""


def suite_digest(tasks: Sequence[ScoredTask]) -> str:
    """Return the digest of a suite: name and content of each task."""
    return tasks_digest({task.name: task.digest for task in tasks})


def contaminated_tasks(tasks: Sequence[ScoredTask], training: Sequence[str]) -> list[str]:
    """Name the tasks that were in the training data.

    Args:
        tasks: Scored tasks.
        training: Digests of the tasks that training rows came from.
    """
    seen = set(training)
    return [task.name for task in tasks if task.identity in seen or task.digest in seen]


def mapped_images(tasks: Sequence[AdmittedTask]) -> dict[str, str]:
    """Return the images that a map replaced, over all tasks."""
    return {image: other for task in tasks for image, other in task.mapped.items()}


def pulled_images(tasks: Sequence[AdmittedTask]) -> dict[str, str]:
    """Return the image of every container, by the folder that Harbor hands to its sandbox."""
    return {str(task.path / folder): image for task in tasks for folder, image in task.images.items()}
