"""Task sets by name: `terminal-bench@2.0` of Harbor's registry, or of a file in the same format."""

import asyncio
import json
import shutil
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from whetstone_api.vocabulary import Reason

from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.tasks.repositories import check_out

REGISTRY_SECONDS: Final = 20.0
"""How long Harbor's registry may take to answer."""
_SHOWN: Final = 8


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One task of a named set."""

    path: str
    """Folder in the repository, or on this disk."""
    url: str | None = None
    """Repository; None for a task on this disk."""
    commit: str | None = None
    """Commit, or None for the newest of the repository."""

    @property
    def name(self) -> str:
        """The task's name, as Harbor has it: that of its folder."""
        return PurePosixPath(self.path).name


def look_up(name: str, registry: Path | None) -> list[Entry]:
    """Return the tasks of a named set.

    Args:
        name: `name@version`.
        registry: File in the format of Harbor's `registry.json`; None asks Harbor's own registry.

    Raises:
        ArtifactError: `SOURCE_NOT_FOUND` when there is no such set, `SOURCE_UNREACHABLE` when nobody answers.
    """
    return _in_file(name, registry) if registry is not None else _at_harbor(name)


def gather(entries: list[Entry], folder: Path, scratch: Path) -> list[str]:
    """Put the tasks of a named set into a folder, a folder each.

    Args:
        entries: From `look_up`.
        folder: Where to; it exists.
        scratch: Folder for repositories; emptied.

    Returns:
        The repositories with the commits that were read.

    Raises:
        ArtifactError: As `check_out`; `TASKS_INVALID` for two tasks of one name.
    """
    places = defaultdict(list)
    for entry in entries:
        places[(entry.url, entry.commit)].append(entry)
    revisions = []
    for (url, commit), group in places.items():
        root = Path("/")
        if url is not None:
            shutil.rmtree(scratch, ignore_errors=True)
            found = check_out(url, commit or "HEAD", scratch, [entry.path for entry in group])
            revisions.append(f"{url}@{found}")
            root = scratch
        for entry in group:
            _copy(root / entry.path, folder / entry.name)
    shutil.rmtree(scratch, ignore_errors=True)
    return sorted(revisions)


def _copy(source: Path, target: Path) -> None:
    if target.exists():
        raise ArtifactError(Reason.TASKS_INVALID, f"two tasks are named {target.name}; their folders need other names")
    if not source.is_dir():
        raise ArtifactError(Reason.SOURCE_NOT_FOUND, f"task {target.name}: there is no folder {source}")
    shutil.copytree(source, target)


def _in_file(name: str, registry: Path) -> list[Entry]:
    wanted, _, version = name.partition("@")
    try:
        sets = [one for one in json.loads(registry.read_bytes()) if isinstance(one, dict)]
        known = sorted(f"{one['name']}@{one['version']}" for one in sets)
        found = next((one for one in sets if (one["name"], str(one["version"])) == (wanted, version)), None)
        if found is None:
            shown = ", ".join(known[:_SHOWN]) or "nothing"
            raise ArtifactError(
                Reason.SOURCE_NOT_FOUND, f"{registry.name} has no task set {name} (it has {shown}); correct the name"
            )
        return [_entry(task, registry.parent) for task in found["tasks"]]
    except OSError as error:
        raise ArtifactError(Reason.SOURCE_NOT_FOUND, f"registry {registry} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ArtifactError(
            Reason.SOURCE_NOT_FOUND,
            f"registry {registry} is not what Harbor's registry.json is ({type(error).__name__}: {error})",
        ) from error


def _entry(task: dict[str, Any], folder: Path) -> Entry:
    url = task.get("git_url")
    path = str(task["path"])
    if url is None:
        return Entry(path=str((folder / path).resolve()))
    if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
        raise ValueError(f"path {path} leads out of the repository")
    return Entry(path=path, url=str(url), commit=task.get("git_commit_id"))


def _at_harbor(name: str) -> list[Entry]:
    try:
        from harbor.models.task.id import GitTaskId
        from harbor.registry.client.factory import RegistryClientFactory
    except ModuleNotFoundError as error:
        raise ArtifactError(
            Reason.SOURCE_UNREACHABLE,
            f"{name}: Harbor's registry is asked by Harbor, which is not installed; install whetstone[agent] or give a"
            " registry file",
        ) from error

    async def ask() -> Any:
        async with asyncio.timeout(REGISTRY_SECONDS):
            return await RegistryClientFactory.create().get_dataset_metadata(name)

    try:
        metadata = asyncio.run(ask())
    except ValueError as error:
        raise ArtifactError(Reason.SOURCE_NOT_FOUND, f"Harbor's registry: {error}; correct the name") from error
    except Exception as error:
        what = str(error) or type(error).__name__
        raise ArtifactError(
            Reason.SOURCE_UNREACHABLE,
            f"{name}: Harbor's registry does not answer ({what[:200]}); without internet, make a bundle where there is"
            " some (whetstone bundle) and name its place in dataset.uri, or give a registry file",
        ) from error
    tasks = metadata.task_ids
    if not all(isinstance(task, GitTaskId) for task in tasks):
        raise ArtifactError(
            Reason.SOURCE_NOT_FOUND, f"{name}: its tasks are not in a git repository; download it with Harbor instead"
        )
    return [Entry(path=task.path.as_posix(), url=task.git_url, commit=task.git_commit_id) for task in tasks]
