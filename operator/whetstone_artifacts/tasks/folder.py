"""A task's folder: what it holds, what identifies it, and which containers a trial of it starts.

Formats: Harbor's task format 1.4 (https://pypi.org/project/harbor/0.26.0/).
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from whetstone_api.digests import canonical_digest, content_digest

from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.folders import file_entries

CONFIG: Final = "task.toml"
TASK_DIGEST_KEYS: Final = ("whetstone_task_digest", "task_digest")
"""Keys of `[metadata]` under which a task says its identity, by which training rows name it too (field `task`)."""
NESTED: Final = "tasks"
"""Folder of the tasks in a bundle, and in many data sets."""


class TaskError(Exception):
    """A folder is no task that can be read.

    Args:
        message: What is wrong with it and the fix.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@dataclass(frozen=True, kw_only=True)
class Container:
    """One container that a trial starts: the agent's, or that of a separate verifier."""

    section: str
    """Where `task.toml` describes it, as in `environment` or `verifier.environment`."""
    folder: str
    """Folder in the task that it may be built from, as Harbor hands it to the sandbox."""
    image: str | None
    """As `task.toml` names it; None for one that is built from the folder's Dockerfile."""


@dataclass(frozen=True, kw_only=True)
class TaskFolder:
    """A task that was read."""

    name: str
    """Name of its folder."""
    path: Path
    digest: str
    """Content digest of the folder."""
    config: Mapping[str, Any]
    """What `task.toml` says."""

    @property
    def identity(self) -> str:
        """What training rows call it: its `task_digest`, or else the content digest."""
        metadata = self.config.get("metadata") or {}
        return next((str(metadata[key]) for key in TASK_DIGEST_KEYS if metadata.get(key)), self.digest)

    @property
    def tags(self) -> list[str]:
        """What `[metadata]` tags it with."""
        tags = (self.config.get("metadata") or {}).get("tags")
        return [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []

    @property
    def steps(self) -> list[dict[str, Any]]:
        """Its steps; empty for a task of one step."""
        return list(self.config.get("steps") or [])


def task_folders(root: Path) -> list[Path]:
    """Return the folders of a task set by name: those below the root, or below its folder `tasks`."""
    nested = root / NESTED
    place = nested if nested.is_dir() and not (nested / CONFIG).exists() else root
    return sorted(path for path in place.iterdir() if path.is_dir() and not path.name.startswith("."))


def read_task(folder: Path) -> TaskFolder:
    """Read a task.

    Raises:
        TaskError: It is none.
    """
    if not (folder / CONFIG).is_file():
        raise TaskError(f"has no {CONFIG}; add it or leave the folder out")
    try:
        config = tomllib.loads((folder / CONFIG).read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TaskError(f"{CONFIG} cannot be read ({error}); fix it") from error
    for section in ("metadata", "agent", "verifier", "environment"):
        if not isinstance(config.get(section, {}), dict):
            raise TaskError(f"{CONFIG}: {section} is not a table; fix it")
    if not all(isinstance(step, dict) and step.get("name") for step in config.get("steps") or []):
        raise TaskError(f"{CONFIG}: a [[steps]] entry has no name; fix it")
    try:
        digest = content_digest({path: entry.sha256 for path, entry in file_entries(folder).items()})
    except ArtifactError as error:
        raise TaskError(error.message) from error
    return TaskFolder(name=folder.name, path=folder, digest=digest, config=config)


def tasks_digest(digests: Mapping[str, str]) -> str:
    """Return the digest of a task set, wherever it lies.

    Args:
        digests: Content digest of each task by its name.
    """
    return canonical_digest(dict(digests))


def containers(task: TaskFolder) -> list[Container]:
    """Return the containers that a trial starts, the agent's first; each folder once.

    The order in which a separate verifier's image is looked for is Harbor's (`models/task/verifier_mode.py`): the
    step's own image or `tests` folder, then the task's, then the agent's.
    """
    agents = Container(
        section="environment", folder="environment", image=_image(task.config.get("environment")) or None
    )
    found = [agents]
    verifier = task.config.get("verifier") or {}
    candidates = [("verifier.environment", "tests", verifier)]
    if not task.steps and _separate(verifier):
        found.append(_verifier(task, candidates) or agents)
    for step in task.steps:
        own = step.get("verifier") or {}
        if not _separate(own if _says_mode(own) else verifier):
            continue
        name = step["name"]
        first = (f"steps.{name}.verifier.environment", f"steps/{name}/tests", own)
        found.append(_verifier(task, [first, *candidates]) or agents)
    return list({container.folder: container for container in reversed(found)}.values())[::-1]


def _verifier(task: TaskFolder, candidates: list[tuple[str, str, Mapping[str, Any]]]) -> Container | None:
    for section, folder, verifier in candidates:
        image = _image(verifier.get("environment"))
        if image or any((task.path / folder / name).is_file() for name in ("Dockerfile", "docker-compose.yaml")):
            return Container(section=section, folder=folder, image=image or None)
    return None


def _image(environment: Any) -> str:
    return str((environment or {}).get("docker_image") or "")


def _says_mode(verifier: Mapping[str, Any]) -> bool:
    return verifier.get("environment_mode") is not None or verifier.get("environment") is not None


def _separate(verifier: Mapping[str, Any]) -> bool:
    mode = verifier.get("environment_mode")
    return mode == "separate" if mode is not None else verifier.get("environment") is not None
