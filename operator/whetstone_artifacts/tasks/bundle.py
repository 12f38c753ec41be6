"""Bundles: planned from tasks on disk, written whole or not at all, packed for registries, read again."""

import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from whetstone_api.adapter_artifact import MANIFEST_FILE, Manifest
from whetstone_api.benchmark_suite import ImageRewriting, RefusedTask
from whetstone_api.digests import content_digest
from whetstone_api.task_bundle import (
    BUNDLE_FILE,
    TASKS_FOLDER,
    TASKS_TAR,
    Bundle,
    BundleImage,
    ImageOrigin,
    Provenance,
)
from whetstone_api.vocabulary import Reason, TaskRefusal

from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.folders import beside, file_entry, publish_folder
from whetstone_artifacts.sources.parcel import Parcel
from whetstone_artifacts.sources.remote import Content
from whetstone_artifacts.tasks.admission import ALLOWLIST, NO_NETWORK, PUBLIC, Offer, refusal
from whetstone_artifacts.tasks.folder import TaskError, TaskFolder, containers, read_task, tasks_digest
from whetstone_artifacts.tasks.images import rewrite

ANY_NETWORK = Offer(
    network_modes=frozenset({PUBLIC, NO_NETWORK, ALLOWLIST}),
    allowed_hosts=frozenset({"address", "hostname", "wildcard"}),
    per_phase=True,
)
"""What networks a cluster enforces is judged there, not when a bundle is made."""


@dataclass(frozen=True, kw_only=True)
class Build:
    """An image that must be built for a bundle."""

    task: str
    folder: str
    context: Path
    """Folder of the Dockerfile."""


@dataclass(frozen=True, kw_only=True)
class BundlePlan:
    """What a bundle will hold.

    Args:
        tasks: The tasks.
        images: Image of every container that `task.toml` names one for.
        builds: Images that come as a Dockerfile.
        refused: Folders that are no tasks; they are left out.
        provenance: Where the tasks come from.
    """

    tasks: Sequence[TaskFolder]
    images: Sequence[BundleImage]
    builds: Sequence[Build]
    refused: Sequence[RefusedTask]
    provenance: Provenance

    @property
    def digest(self) -> str:
        """Digest of the task set."""
        return tasks_digest({task.name: task.digest for task in self.tasks})


def plan_bundle(folders: Sequence[Path], rewriting: ImageRewriting | None, provenance: Provenance) -> BundlePlan:
    """Read tasks and decide what a bundle of them holds.

    Args:
        folders: Task folders.
        rewriting: Other names for their images.
        provenance: Where they come from.

    Raises:
        ArtifactError: `TASKS_INVALID` when none of them is a task.
    """
    tasks, refused, images, builds = [], [], [], []
    for folder in folders:
        try:
            task = read_task(folder)
        except TaskError as error:
            refused.append(RefusedTask(task=folder.name, reason=TaskRefusal.INVALID, message=error.message))
            continue
        tasks.append(task)
        for container in containers(task):
            if container.image is not None:
                images.append(_named(task, container.folder, container.image, rewriting))
            elif (task.path / container.folder / "Dockerfile").is_file():
                builds.append(Build(task=task.name, folder=container.folder, context=task.path / container.folder))
    if not tasks:
        why = "; ".join(f"{one.task} {one.message}" for one in refused[:3])
        raise ArtifactError(
            Reason.TASKS_INVALID,
            f"{provenance.source}: there are no Harbor tasks{': ' + why if why else ''}; correct it",
        )
    return BundlePlan(tasks=tasks, images=images, builds=builds, refused=refused, provenance=provenance)


def describe(plan: BundlePlan, built: Mapping[tuple[str, str], str]) -> Bundle:
    """Return what `bundle.json` says.

    Args:
        plan: The plan.
        built: Reference of each image that was built, by task and folder.
    """
    images = [*plan.images]
    for build in plan.builds:
        reference = built.get((build.task, build.folder))
        images.append(BundleImage(task=build.task, folder=build.folder, reference=reference, origin=ImageOrigin.BUILT))
    refused = [*plan.refused]
    for task in plan.tasks:
        own = {one.folder: one.reference for one in images if one.task == task.name and one.reference}
        found = refusal(task, ANY_NETWORK, own)
        if found is not None:
            refused.append(found)
    return Bundle(
        digest=plan.digest,
        tasks={task.name: task.digest for task in sorted(plan.tasks, key=lambda task: task.name)},
        images=sorted(images, key=lambda one: (one.task, one.folder)),
        refused=sorted(refused, key=lambda one: one.task),
        provenance=plan.provenance,
    )


def write_bundle(plan: BundlePlan, bundle: Bundle, target: Path) -> bool:
    """Write a bundle to a folder: whole, or not at all.

    Returns:
        Whether the same one was there already.

    Raises:
        ArtifactError: `OUTPUT_OCCUPIED` when the folder holds anything else.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        held = read_bundle(target)
        if held == bundle and _holds(target, bundle):
            return True
        what = "other files" if held is None else f"bundle {held.digest}, or other images"
        raise ArtifactError(
            Reason.OUTPUT_OCCUPIED, f"{target} holds {what}; it is never overwritten: name another folder or empty it"
        )
    with beside(target) as folder:
        for task in plan.tasks:
            shutil.copytree(task.path, folder / TASKS_FOLDER / task.name)
        (folder / BUNDLE_FILE).write_text(bundle.model_dump_json(by_alias=True, exclude_none=True, indent=1) + "\n")
        if not _holds(folder, bundle):
            raise ArtifactError(
                Reason.TASKS_INVALID, f"{plan.provenance.source} changed while it was copied; try again"
            )
        publish_folder(folder, target)
    return False


def read_bundle(folder: Path) -> Bundle | None:
    """Return what a folder's `bundle.json` says; None for a folder without one.

    Raises:
        ArtifactError: `TASKS_INVALID` when it cannot be read.
    """
    path = folder / BUNDLE_FILE
    if not path.is_file():
        return None
    try:
        return Bundle.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise ArtifactError(
            Reason.TASKS_INVALID, f"{path} is no bundle ({error.error_count()} errors); make it again"
        ) from error


def bundled_images(root: Path) -> dict[str, dict[str, BundleImage]]:
    """Return the images that a task set's `bundle.json` names, by task and folder; none without one.

    Raises:
        ArtifactError: As `read_bundle`.
    """
    held = read_bundle(root)
    found: dict[str, dict[str, BundleImage]] = {}
    for image in held.images if held else []:
        found.setdefault(image.task, {})[image.folder] = image
    return found


@contextmanager
def packed(folder: Path) -> Iterator[Parcel]:
    """Give a bundle as it is pushed: `bundle.json`, and one archive, which is the same for the same tasks."""
    with tempfile.TemporaryDirectory(prefix="bundle-") as name:
        scratch = Path(name)
        shutil.copyfile(folder / BUNDLE_FILE, scratch / BUNDLE_FILE)
        with tarfile.open(scratch / TASKS_TAR, "w", format=tarfile.PAX_FORMAT) as archive:
            for path in sorted((folder / TASKS_FOLDER).rglob("*")):
                inside = path.relative_to(folder).as_posix()
                archive.add(path, arcname=inside, recursive=False, filter=_plain)
        files = {one: file_entry(scratch / one) for one in (BUNDLE_FILE, TASKS_TAR)}
        digest = content_digest({one: entry.sha256 for one, entry in files.items()})
        manifest = Manifest(digest=digest, files=files)
        yield Parcel(content=Content.BUNDLE, folder=scratch, manifest=manifest, marker=MANIFEST_FILE)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return member


def _named(task: TaskFolder, folder: str, image: str, rewriting: ImageRewriting | None) -> BundleImage:
    rewritten = rewrite(image, rewriting)
    origin = ImageOrigin.NAMED
    if rewritten.reference != image:
        origin = ImageOrigin.MAP if rewritten.mapped else ImageOrigin.PREFIX
    return BundleImage(task=task.name, folder=folder, image=image, reference=rewritten.reference, origin=origin)


def _holds(folder: Path, bundle: Bundle) -> bool:
    try:
        return all(read_task(folder / TASKS_FOLDER / name).digest == digest for name, digest in bundle.tasks.items())
    except TaskError:
        return False
