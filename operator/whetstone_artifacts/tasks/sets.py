"""Task sets and other folders that lie elsewhere: fetched whole, bounded and unpacked, or not at all."""

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from whetstone_api.digests import content_digest
from whetstone_api.source import Scheme, is_packed, scheme_of
from whetstone_api.task_bundle import BUNDLE_FILE, TASKS_TAR
from whetstone_api.vocabulary import Reason

from whetstone_artifacts.archives import FOLDER_BYTES, FOLDER_FILES
from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.folders import beside, publish_folder
from whetstone_artifacts.sources.credentials import Credentials
from whetstone_artifacts.sources.download import Progress, download, sha256_of
from whetstone_artifacts.sources.fetch import open_file, open_place, open_tree
from whetstone_artifacts.sources.remote import Content, Readable, RemoteFile
from whetstone_artifacts.tasks.bundle import read_bundle
from whetstone_artifacts.tasks.folder import TaskError, read_task, task_folders, tasks_digest
from whetstone_artifacts.tasks.unpack import lift, unpack_tasks

_BUNDLED: Final = frozenset({BUNDLE_FILE, TASKS_TAR})


def resolve_place(uri: str, credentials: Credentials) -> str:
    """Return a place with the branch or tag of a hub replaced by the commit that it names now.

    Args:
        uri: Any URI of `FolderSource` but `pvc://`.
        credentials: What the place asks for.

    Raises:
        ArtifactError: `SOURCE_NOT_FOUND`, `SOURCE_FORBIDDEN` or `SOURCE_UNREACHABLE`.
    """
    if scheme_of(uri) is not Scheme.HUB:
        return uri
    from whetstone_artifacts.sources.stores import HubFolder

    return HubFolder(uri, credentials).resolved()


def fetch_folder(
    uri: str, credentials: Credentials, target: Path, *, progress: Progress = lambda _done, _total: None
) -> None:
    """Bring a folder from elsewhere, out of its archive where it comes in one.

    Args:
        uri: Any URI of `FolderSource` but `pvc://`: an archive by its name, else a bundle or a folder.
        credentials: What the place asks for.
        target: Folder to make; it appears whole, or not at all.
        progress: Told while it is fetched.

    Raises:
        ArtifactError: As `download`; `TASKS_INVALID` for what is too large or cannot be unpacked.
    """
    with beside(target) as scratch:
        publish_folder(_brought(uri, credentials, scratch, progress), target, durable=False)


def unpack_folder(archive: Path, target: Path) -> None:
    """Bring a folder out of an archive on this disk; raises as `fetch_folder`."""
    if not archive.is_file():
        what = "is a folder; name it without the ending of an archive" if archive.is_dir() else "does not exist"
        raise ArtifactError(Reason.SOURCE_NOT_FOUND, f"the archive {archive.name} {what}, or put it there")
    with beside(target) as scratch:
        publish_folder(_unpacked(archive, scratch), target, durable=False)


def check_task_set(root: Path, digest: str | None, where: str) -> None:
    """Check that a folder is the task set that was asked for.

    Args:
        root: The folder.
        digest: Digest of the set as `whetstone bundle` prints it; None for any.
        where: The place, for messages.

    Raises:
        ArtifactError: `TASKS_INVALID` without a task; `DIGEST_MISMATCH`.
    """
    digests = {}
    folders = task_folders(root)
    for folder in folders:
        try:
            digests[folder.name] = read_task(folder).digest
        except TaskError:
            continue
    if not digests:
        packed = sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if is_packed(path.name))
        hint = f"; name the file that holds them (there is {', '.join(packed[:3])})" if packed else ""
        raise ArtifactError(Reason.TASKS_INVALID, f"{where}: there are no Harbor tasks{hint}; correct the place")
    bundle = read_bundle(root)
    if bundle is not None and {name: digests.get(name) for name in bundle.tasks} != bundle.tasks:
        raise ArtifactError(
            Reason.DIGEST_MISMATCH, f"{where}: the tasks are not those that {BUNDLE_FILE} names; make the bundle again"
        )
    found = tasks_digest(digests)
    if digest is not None and found != digest:
        raise ArtifactError(
            Reason.DIGEST_MISMATCH,
            f"{where}: the task set is {found}, not the expected {digest}; put that one there or name the digest that"
            " is there",
        )


def check_folder(root: Path, digest: str | None) -> str:
    """Check that a folder is the one that was asked for, and return its digest.

    Args:
        root: The folder.
        digest: What `folder_digest` must find; None for anything.

    Raises:
        ArtifactError: `DIGEST_MISMATCH`.
    """
    found = folder_digest(root)
    if digest not in (None, found):
        raise ArtifactError(
            Reason.DIGEST_MISMATCH,
            f"digest: the folder is {found}, not the expected {digest}; put that one there or name the digest that is"
            " there",
        )
    return found


def folder_digest(root: Path) -> str:
    """Return the digest of all files of a folder, whatever they are; of a link, its target counts."""
    found = {}
    for path in root.rglob("*"):
        if path.is_symlink():
            found[path.relative_to(root).as_posix()] = hashlib.sha256(str(path.readlink()).encode()).hexdigest()
        elif path.is_file():
            found[path.relative_to(root).as_posix()] = sha256_of(path)
    return content_digest(found)


def _brought(uri: str, credentials: Credentials, scratch: Path, progress: Progress) -> Path:
    name = uri.rsplit("/", 1)[-1]
    scheme = scheme_of(uri)
    if is_packed(name) and scheme is not Scheme.OCI:
        place = open_file(uri, credentials)
        _download(place, [place.file()], scratch / "packed", progress)
        return _unpacked(scratch / "packed" / name, scratch)
    if scheme is Scheme.HTTPS:
        bundle = open_place(uri, credentials)
        _download(bundle, bundle.files(Content.BUNDLE), scratch / "packed", progress)
        return _opened(scratch)
    tree = open_tree(uri, credentials)
    files = tree.tree()
    bundled = [file for file in files if file.name in _BUNDLED]
    if len(bundled) == len(_BUNDLED):
        _download(tree, bundled, scratch / "packed", progress)
        return _opened(scratch)
    if scheme is Scheme.OCI and len(files) == 1 and is_packed(files[0].name):
        # A file of an artifact cannot be named in the place itself.
        _download(tree, files, scratch / "packed", progress)
        return _unpacked(scratch / "packed" / files[0].name, scratch)
    _download(tree, files, scratch / "folder", progress)
    return scratch / "folder"


def _download(place: Readable, files: Sequence[RemoteFile], staging: Path, progress: Progress) -> None:
    size = sum(file.size for file in files)
    if size > FOLDER_BYTES or len(files) > FOLDER_FILES:
        raise ArtifactError(
            Reason.TASKS_INVALID,
            f"uri {place.uri}: {size} bytes in {len(files)} files are more than {FOLDER_BYTES >> 30} GiB or"
            f" {FOLDER_FILES} files; leave out what is not needed, or put the folder in a claim (pvc://)",
        )
    download(place, files, staging, progress=progress)


def _opened(scratch: Path) -> Path:
    """Return the folder of a bundle: `bundle.json` beside the tasks that its archive holds."""
    folder = scratch / "unpacked"
    folder.mkdir()
    unpack_tasks(scratch / "packed" / TASKS_TAR, folder)
    (scratch / "packed" / BUNDLE_FILE).replace(folder / BUNDLE_FILE)
    shutil.rmtree(scratch / "packed")
    return folder


def _unpacked(archive: Path, scratch: Path) -> Path:
    folder = scratch / "unpacked"
    folder.mkdir()
    unpack_tasks(archive, folder)
    return lift(folder)
