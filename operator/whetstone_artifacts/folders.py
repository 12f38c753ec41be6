"""Adapter folders: digest, manifest, verification, copying and publishing by one rename."""

import hashlib
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError
from whetstone_api.adapter_artifact import (
    CONFIG_FILE,
    IDENTITY_FILES,
    MANIFEST_FILE,
    WEIGHTS_FILE,
    FileEntry,
    Manifest,
    is_served,
)
from whetstone_api.digests import content_digest
from whetstone_api.vocabulary import Reason

from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.replacing import sync

CHUNK = 1 << 20
PARTIAL = ".partial-"
"""Infix of temporary siblings; what a killed process left under such a name is removed by the next one."""


def file_entry(path: Path) -> FileEntry:
    """Return checksum and size (bytes) of one file."""
    checksum = hashlib.sha256()
    size = 0
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            checksum.update(chunk)
            size += len(chunk)
    return FileEntry(sha256=checksum.hexdigest(), size=size)


def file_entries(folder: Path) -> dict[str, FileEntry]:
    """Return every file of a folder but its manifest, by relative POSIX path.

    Raises:
        ArtifactError: The folder is missing, or holds a symbolic link (which could lead out of its volume).
    """
    _require_folder(folder)
    entries: dict[str, FileEntry] = {}
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder).as_posix()
        if path.is_symlink():
            raise ArtifactError(
                Reason.ADAPTER_INVALID, f"{folder}: {relative} is a symbolic link; put the file itself there"
            )
        if path.is_file() and relative != MANIFEST_FILE:
            entries[relative] = file_entry(path)
    return entries


def adapter_digest(folder: Path) -> str:
    """Return the content digest (`sha256:…`) of an adapter: over what an engine reads.

    Raises:
        ArtifactError: `ADAPTER_NOT_FOUND` without a folder, `ADAPTER_INVALID` without one of the files.
    """
    return _digest_of(folder, file_entries(folder))


def write_manifest(folder: Path) -> Manifest:
    """Write `manifest.json` over all files that the folder holds now, and return it."""
    entries = file_entries(folder)
    manifest = Manifest(digest=_digest_of(folder, entries), files=entries)
    (folder / MANIFEST_FILE).write_text(manifest.to_json())
    return manifest


def verify_adapter(folder: Path, digest: str | None) -> Manifest:
    """Read a whole adapter and compare it with its manifest and, when given, with the digest asked for.

    Args:
        folder: The adapter's folder. One without a manifest (made by another program) is accepted.
        digest: Expected content digest, or None for any.

    Returns:
        The manifest of what is really there.

    Raises:
        ArtifactError: `ADAPTER_NOT_FOUND`, `ADAPTER_INVALID` or `DIGEST_MISMATCH`.
    """
    entries = file_entries(folder)
    found = _digest_of(folder, entries)
    recorded = _read_manifest(folder)
    if recorded is not None:
        _compare(folder, recorded.files, entries)
    if digest is not None:
        _require_digest(folder, found, digest)
    return Manifest(digest=found, files=entries)


def fetch_adapter(source: Path, target: Path, digest: str) -> None:
    """Copy an adapter out of a store; the target appears whole and verified, or not at all.

    Only what an engine or a probe may read is copied (`is_served`). Calling it again with a verified target does
    nothing.

    Args:
        source: Folder in a mounted store.
        target: Folder to make; its parent exists.
        digest: Content digest that the copy must have.

    Raises:
        ArtifactError: As `verify_adapter`. OSError of the file systems passes through.
    """
    if holds_adapter(target, digest):
        return
    _require_folder(source)
    for stale in target.parent.glob(f".{target.name}{PARTIAL}*"):
        shutil.rmtree(stale, ignore_errors=True)
    temporary = target.with_name(f".{target.name}{PARTIAL}{secrets.token_hex(4)}")
    temporary.mkdir()
    try:
        for path in sorted(source.iterdir()):
            if is_served(path.name) and not path.is_symlink() and path.is_file():
                shutil.copyfile(path, temporary / path.name)
        admit_adapter(temporary, target, digest, place=str(source))
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def holds_adapter(target: Path, digest: str) -> bool:
    """Return whether a verified copy of an adapter is there; a copy that is not what it should be is removed."""
    if not target.is_dir():
        return False
    try:
        verify_adapter(target, digest)
    except ArtifactError:
        shutil.rmtree(target)
        return False
    return True


def admit_adapter(temporary: Path, target: Path, digest: str, *, place: str) -> None:
    """Verify the copy of an adapter and make it appear at its place.

    Args:
        temporary: The copy, beside the target.
        target: Where it shall be.
        digest: Content digest that it must have.
        place: Where it was copied from, for messages.

    Raises:
        ArtifactError: As `verify_adapter`.
    """
    recorded = _read_manifest(temporary)
    if recorded is not None:
        _compare(place, {k: v for k, v in recorded.files.items() if is_served(k)}, file_entries(temporary))
    (temporary / MANIFEST_FILE).unlink(missing_ok=True)
    found = write_manifest(temporary).digest
    _require_digest(place, found, digest)
    publish_folder(temporary, target, durable=False)


@contextmanager
def beside(place: Path) -> Iterator[Path]:
    """Give a new folder on the place's file system; what is left of it, or of a killed process's, is removed."""
    place.parent.mkdir(parents=True, exist_ok=True)
    for stale in place.parent.glob(f".{place.name}{PARTIAL}*"):
        shutil.rmtree(stale, ignore_errors=True)
    folder = place.with_name(f".{place.name}{PARTIAL}{secrets.token_hex(4)}")
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def publish_folder(temporary: Path, place: Path, *, durable: bool = True) -> None:
    """Make a finished folder appear at its place by one rename, after everything is on disk.

    Args:
        temporary: Finished folder on the same file system.
        place: Where it shall be; missing parents are made, an empty folder there is replaced.
        durable: False for a copy that is verified before each use: it need not outlive a crash of the machine.

    Raises:
        ArtifactError: `OUTPUT_OCCUPIED` when the place holds something.
    """
    if durable:
        for path in (*temporary.rglob("*"), temporary):
            if path.is_file() or path.is_dir():
                sync(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        temporary.rename(place)
    except OSError as error:
        if place.exists():
            raise ArtifactError(
                Reason.OUTPUT_OCCUPIED, f"{place} already holds something; name another output or remove it"
            ) from error
        raise
    if durable:
        sync(place.parent)


def _require_digest(folder: Path | str, found: str, expected: str) -> None:
    if found != expected:
        raise ArtifactError(
            Reason.DIGEST_MISMATCH,
            f"{folder} holds {found}, not the expected {expected}; restore the files or name the digest that is there",
        )


def _require_folder(folder: Path) -> None:
    if not folder.is_dir() or not any(folder.iterdir()):
        raise ArtifactError(
            Reason.ADAPTER_NOT_FOUND,
            f"{folder} does not exist or is empty; publish the adapter there or correct the uri",
        )


def _digest_of(folder: Path, entries: Mapping[str, FileEntry]) -> str:
    for name in IDENTITY_FILES:
        if name not in entries:
            hint = ""
            if name == WEIGHTS_FILE and (folder / "adapter_model.bin").exists():
                hint = " (adapter_model.bin is a pickle and never loaded; save with safe_serialization=True)"
            raise ArtifactError(
                Reason.ADAPTER_INVALID,
                f"{folder} has no {name}{hint}; an adapter needs {CONFIG_FILE} and {WEIGHTS_FILE}",
            )
    return content_digest({name: entries[name].sha256 for name in IDENTITY_FILES})


def _read_manifest(folder: Path) -> Manifest | None:
    path = folder / MANIFEST_FILE
    if not path.is_file():
        return None
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise ArtifactError(
            Reason.ADAPTER_INVALID, f"{path} is not a manifest ({error.error_count()} errors); publish again"
        ) from error


def _compare(folder: Path | str, recorded: Mapping[str, FileEntry], found: Mapping[str, FileEntry]) -> None:
    for name, entry in recorded.items():
        if name not in found:
            raise ArtifactError(
                Reason.DIGEST_MISMATCH,
                f"{folder}: {name} is in {MANIFEST_FILE} and missing; restore it or publish again",
            )
        if found[name] != entry:
            raise ArtifactError(
                Reason.DIGEST_MISMATCH,
                f"{folder}: {name} has {found[name].size} bytes with sha256 {found[name].sha256[:12]}…,"
                f" {MANIFEST_FILE} says {entry.size} and {entry.sha256[:12]}…; restore it or publish again",
            )
