"""Admission of tasks: every task is read and judged before the first trial starts."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from whetstone_api.benchmark_suite import HarborSuite, RefusedTask, RefusedTasks, WhenRefused
from whetstone_api.task_bundle import BundleImage, ImageOrigin
from whetstone_api.vocabulary import Reason, TaskRefusal
from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.tasks.admission import ALLOWLIST, NO_NETWORK, PUBLIC, Offer, refusal
from whetstone_artifacts.tasks.bundle import bundled_images
from whetstone_artifacts.tasks.folder import TaskError, TaskFolder, containers, read_task, task_folders
from whetstone_artifacts.tasks.images import Rewritten, rewrite
from whetstone_artifacts.tasks.sets import check_task_set

from whetstone_agent.failure import RunFailure
from whetstone_agent.tasks import AdmittedTask

OFFER: Final = Offer(
    network_modes=frozenset({PUBLIC, NO_NETWORK, ALLOWLIST}), allowed_hosts=frozenset({"address", "hostname"})
)
"""What our sandboxes can do. Whoever teaches them more says so here."""
_SHOWN_FAULTS: Final = 5
_SHOWN_NAMES: Final = 8
_BUILD_SECONDS: Final = 600.0
_AGENT_SECONDS: Final = 86400.0
_VERIFIER_SECONDS: Final = 600.0


@dataclass(frozen=True, kw_only=True)
class Admission:
    """The tasks of a suite, judged."""

    tasks: list[AdmittedTask]
    """Those that are run, by name."""
    refused: list[RefusedTask]
    """Those that cannot run here, by name."""


def admit_tasks(dataset: Path, suite: HarborSuite, offer: Offer = OFFER) -> Admission:
    """Read the tasks that a suite selects.

    Args:
        dataset: Folder whose sub-folders are Harbor tasks.
        suite: Filters, what to do about refused tasks, and the dataset's URI for messages.
        offer: What the sandboxes can do.

    Returns:
        The tasks in the order of their names; refused ones only where the suite says `Exclude`.

    Raises:
        RunFailure: `TASKS_INVALID`, naming the tasks, what they lack and the fix.
    """
    where = _where(suite)
    if suite.dataset.in_claim is not None and suite.dataset.digest is not None:
        _require_digest(dataset, suite.dataset.digest, where)
    chosen = _chosen(dataset, suite, where)
    bundled = _bundled(dataset, where)
    tasks: list[AdmittedTask] = []
    refused: list[RefusedTask] = []
    for folder in chosen:
        task = _admit(folder, suite, offer, bundled.get(folder.name, {}))
        if isinstance(task, RefusedTask):
            refused.append(task)
        else:
            tasks.append(task)
    if refused and (suite.refused is WhenRefused.FAIL or not tasks):
        raise RunFailure(Reason.TASKS_INVALID, told_faults(refused, suite))
    return Admission(tasks=tasks, refused=refused)


def count_refused(refused: Sequence[RefusedTask]) -> list[RefusedTasks] | None:
    """Return the refused tasks by reason, as the status shows them; None without any."""
    names = defaultdict(list)
    for one in refused:
        names[one.reason.value].append(one.task)
    return [
        RefusedTasks(reason=reason, count=len(found), names=found[:_SHOWN_NAMES])
        for reason, found in sorted(names.items())
    ] or None


def _chosen(dataset: Path, suite: HarborSuite, where: str) -> list[Path]:
    if not dataset.is_dir():
        raise RunFailure(Reason.TASKS_INVALID, f"{where} is not a folder; name the folder that holds the task folders")
    folders = task_folders(dataset)
    if not folders:
        raise RunFailure(Reason.TASKS_INVALID, f"{where} has no task folders; put Harbor tasks there or fix the uri")
    chosen = _select(folders, suite)
    if not chosen:
        shown = ", ".join(path.name for path in folders[:_SHOWN_FAULTS])
        raise RunFailure(
            Reason.TASKS_INVALID,
            f"spec.suite.harbor.tasks leaves none of the {len(folders)} tasks of {where}; fix include and exclude"
            f" (tasks there: {shown}{', …' if len(folders) > _SHOWN_FAULTS else ''})",
        )
    return chosen


def told_faults(refused: Sequence[RefusedTask], suite: HarborSuite) -> str:
    """Return the message of a run that ends because of refused tasks: the tasks, what they lack, and the fix."""
    where = _where(suite)
    told = "; ".join(f"task {one.task!r}: {one.message}" for one in refused[:_SHOWN_FAULTS])
    more = f" (and {len(refused) - _SHOWN_FAULTS} more)" if len(refused) > _SHOWN_FAULTS else ""
    if suite.refused is WhenRefused.FAIL:
        return f"{where}: {told}{more}; spec.suite.harbor.refused: Exclude runs without such tasks"
    return f"{where}: no task is left, all {len(refused)} are refused: {told}{more}"


def _where(suite: HarborSuite) -> str:
    return f"spec.suite.harbor.dataset ({suite.dataset.told})"


def _select(folders: Sequence[Path], suite: HarborSuite) -> list[Path]:
    task_filter = suite.tasks
    if task_filter is None:
        return list(folders)
    kept = [
        folder
        for folder in folders
        if (task_filter.include is None or any(fnmatchcase(folder.name, glob) for glob in task_filter.include))
        and not any(fnmatchcase(folder.name, glob) for glob in task_filter.exclude or ())
    ]
    return kept[: task_filter.limit] if task_filter.limit is not None else kept


def _require_digest(dataset: Path, digest: str, where: str) -> None:
    """Hold a folder of a claim to the digest that the spec names; what was fetched has been held to it already."""
    if not dataset.is_dir():
        return
    try:
        check_task_set(dataset, digest, where)
    except ArtifactError as error:
        raise RunFailure(error.reason, error.message) from error


def _bundled(dataset: Path, where: str) -> dict[str, dict[str, BundleImage]]:
    try:
        return bundled_images(dataset)
    except ArtifactError as error:
        raise RunFailure(error.reason, f"{where}: {error.message}") from error


def _admit(
    folder: Path, suite: HarborSuite, offer: Offer, bundled: Mapping[str, BundleImage]
) -> AdmittedTask | RefusedTask:
    try:
        task = read_task(folder)
    except TaskError as error:
        return RefusedTask(task=folder.name, reason=TaskRefusal.INVALID, message=error.message)
    images: dict[str, str] = {}
    mapped: dict[str, str] = {}
    for container in containers(task):
        given = bundled.get(container.folder)
        pulled = _pulled(container.image, given, suite)
        if pulled is None:
            continue
        images[container.folder] = pulled.reference
        if pulled.mapped:
            original = container.image or (given and given.image) or (given and given.reference) or ""
            mapped[original] = pulled.reference
    found = refusal(task, offer, images) or _refused_by_harbor(task)
    if found is not None:
        return found
    return AdmittedTask(
        name=task.name,
        path=folder.resolve(),
        digest=task.digest,
        identity=task.identity,
        image=images["environment"],
        seconds=_seconds(task),
        steps=max(1, len(task.steps)),
        tags=tuple(task.tags),
        images=images,
        mapped=mapped,
    )


def _pulled(image: str | None, given: BundleImage | None, suite: HarborSuite) -> Rewritten | None:
    """Return where an image is pulled from: the run's map decides, then the bundle, then the run's prefix."""
    if image is not None and (decided := rewrite(image, suite.images)).mapped:
        return decided
    known = (given.reference if given else None) or image
    if known is None:
        return None
    rewritten = rewrite(known, suite.images)
    by_bundle = given is not None and given.origin is ImageOrigin.MAP
    return Rewritten(reference=rewritten.reference, mapped=rewritten.mapped or by_bundle)


def _seconds(task: TaskFolder) -> float:
    """Return the longest time of a trial; a step without a time of its own has the task's."""
    environment: Mapping[str, Any] = task.config.get("environment") or {}
    parts: list[Mapping[str, Any]] = [*task.steps] or [task.config]
    total = float(environment.get("build_timeout_sec", _BUILD_SECONDS)) * len(containers(task))
    for part in parts:
        total += float(_timeout(part, task.config, "agent") or _AGENT_SECONDS)
        total += float(_timeout(part, task.config, "verifier") or _VERIFIER_SECONDS)
    return total


def _timeout(part: Mapping[str, Any], whole: Mapping[str, Any], phase: str) -> Any:
    return (part.get(phase) or {}).get("timeout_sec") or (whole.get(phase) or {}).get("timeout_sec")


def _refused_by_harbor(task: TaskFolder) -> RefusedTask | None:
    from harbor.models.task.task import Task

    try:
        Task(task.path)
    except Exception as error:
        message = f"is not a Harbor task ({' '.join(str(error).split())[:300]}); fix it"
        return RefusedTask(task=task.name, reason=TaskRefusal.INVALID, message=message)
    return None
