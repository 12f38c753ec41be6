"""Admission of tasks: every task is read and judged before the first trial starts."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from whetstone_api.benchmark_suite import HarborSuite
from whetstone_api.digests import canonical_digest, content_digest
from whetstone_api.vocabulary import Reason
from whetstone_artifacts.folders import file_entries

from whetstone_agent.failure import RunFailure

TASK_DIGEST_KEYS: Final = ("whetstone_task_digest", "task_digest")
"""Keys of `[metadata]` under which a task says its identity, by which training rows name it too (field `task`)."""
_SHOWN_FAULTS: Final = 5
_BUILD_SECONDS: Final = 600.0
_AGENT_SECONDS: Final = 86400.0
_VERIFIER_SECONDS: Final = 600.0


@dataclass(frozen=True, kw_only=True)
class AdmittedTask:
    """A task that can run here."""

    name: str
    """Name of its folder."""
    path: Path
    digest: str
    """Content digest of the folder."""
    identity: str
    """What training rows call it: its `task_digest`, or else the content digest."""
    image: str
    """Image of its container."""
    seconds: float
    """Longest time that a trial of it may take, start of the pod and verification included."""


def admit_tasks(dataset: Path, suite: HarborSuite) -> list[AdmittedTask]:
    """Read the tasks that a suite selects.

    Args:
        dataset: Folder whose sub-folders are Harbor tasks.
        suite: Filters, and the dataset's URI for messages.

    Returns:
        The tasks in the order of their names.

    Raises:
        RunFailure: `TASKS_INVALID`, naming the tasks, what they lack and the fix.
    """
    where = f"spec.suite.harbor.dataset ({suite.dataset.uri})"
    if not dataset.is_dir():
        raise RunFailure(Reason.TASKS_INVALID, f"{where} is not a folder; name the folder that holds the task folders")
    folders = sorted(path for path in dataset.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not folders:
        raise RunFailure(Reason.TASKS_INVALID, f"{where} has no task folders; put Harbor tasks there or fix the uri")
    chosen = _select([path.name for path in folders], suite)
    if not chosen:
        shown = ", ".join(path.name for path in folders[:_SHOWN_FAULTS])
        raise RunFailure(
            Reason.TASKS_INVALID,
            f"spec.suite.harbor.tasks leaves none of the {len(folders)} tasks of {where}; fix include and exclude"
            f" (tasks there: {shown}{', …' if len(folders) > _SHOWN_FAULTS else ''})",
        )
    tasks: list[AdmittedTask] = []
    faults: list[str] = []
    for name in chosen:
        task = _read_task(dataset / name)
        if isinstance(task, str):
            faults.append(f"task {name!r}: {task}")
        else:
            tasks.append(task)
    if faults:
        more = f" (and {len(faults) - _SHOWN_FAULTS} more)" if len(faults) > _SHOWN_FAULTS else ""
        raise RunFailure(Reason.TASKS_INVALID, f"{where}: {'; '.join(faults[:_SHOWN_FAULTS])}{more}")
    return tasks


def suite_digest(tasks: Sequence[AdmittedTask]) -> str:
    """Return the digest of a suite: name and content of each task."""
    return canonical_digest({task.name: task.digest for task in tasks})


def contaminated_tasks(tasks: Sequence[AdmittedTask], training: Sequence[str]) -> list[str]:
    """Name the tasks that were in the training data.

    Args:
        tasks: Scored tasks.
        training: Digests of the tasks that training rows came from.
    """
    seen = set(training)
    return [task.name for task in tasks if task.identity in seen or task.digest in seen]


def _select(names: Sequence[str], suite: HarborSuite) -> list[str]:
    task_filter = suite.tasks
    if task_filter is None:
        return list(names)
    kept = [
        name
        for name in names
        if (task_filter.include is None or any(fnmatchcase(name, glob) for glob in task_filter.include))
        and not any(fnmatchcase(name, glob) for glob in task_filter.exclude or ())
    ]
    return kept[: task_filter.limit] if task_filter.limit is not None else kept


def _read_task(folder: Path) -> AdmittedTask | str:
    """Return the task, or what is wrong with it and the fix."""
    for path in ("task.toml", "instruction.md", "tests/test.sh"):
        if not (folder / path).is_file():
            return f"has no {path}; add it or leave the task out with spec.suite.harbor.tasks.exclude"
    try:
        config = tomllib.loads((folder / "task.toml").read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        return f"task.toml cannot be read ({error}); fix it"
    fault = _unsupported(folder, config) or _refused_by_harbor(folder)
    if fault is not None:
        return fault
    environment = config["environment"]
    digest = content_digest({path: entry.sha256 for path, entry in file_entries(folder).items()})
    metadata = config.get("metadata", {})
    identity = next((str(metadata[key]) for key in TASK_DIGEST_KEYS if metadata.get(key)), digest)
    return AdmittedTask(
        name=folder.name,
        path=folder,
        digest=digest,
        identity=identity,
        image=environment["docker_image"],
        seconds=float(environment.get("build_timeout_sec", _BUILD_SECONDS))
        + float(config.get("agent", {}).get("timeout_sec") or _AGENT_SECONDS)
        + float(config.get("verifier", {}).get("timeout_sec") or _VERIFIER_SECONDS),
    )


def _unsupported(folder: Path, config: dict[str, Any]) -> str | None:
    environment = config.get("environment", {})
    if (folder / "environment" / "docker-compose.yaml").exists():
        return "needs docker compose (environment/docker-compose.yaml), which is not supported; exclude it"
    if not environment.get("docker_image"):
        return (
            "task.toml has no [environment] docker_image; build its environment/Dockerfile, push the image and name it"
            " there"
        )
    if config.get("steps"):
        return "has [[steps]]; tasks of several steps are not supported: exclude it"
    if environment.get("gpus") or environment.get("tpu"):
        return "asks for an accelerator in [environment]; trial pods have none: exclude it"
    if environment.get("os", "linux") != "linux":
        return f"asks for [environment] os = {environment['os']!r}; only linux is supported: exclude it"
    if environment.get("mcp_servers"):
        return "asks for [environment] mcp_servers, which are not supported; exclude it"
    for section in ("environment", "agent", "verifier"):
        mode = config.get(section, {}).get("network_mode", "public")
        if mode != "public":
            return (
                f"[{section}] network_mode = {mode!r} cannot be enforced here; set it to 'public' or exclude the task"
            )
    verifier = config.get("verifier", {})
    if verifier.get("environment") or verifier.get("environment_mode", "shared") != "shared":
        return "[verifier] asks for an environment of its own, which is not supported; exclude it"
    return None


def _refused_by_harbor(folder: Path) -> str | None:
    from harbor.models.task.task import Task

    try:
        Task(folder)
    except Exception as error:
        return f"is not a Harbor task ({' '.join(str(error).split())[:300]}); fix it"
    return None
