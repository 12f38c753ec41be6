"""Download of a place's files into a folder, in pieces, so that a killed download goes on where it was."""

import hashlib
import logging
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from whetstone_api.vocabulary import Reason

from whetstone_artifacts.errors import FULL_DISK, ArtifactError
from whetstone_artifacts.sources.remote import Readable, RemoteFile

log = logging.getLogger(__name__)

PIECE_BYTES = 16 << 20
WORKERS = 4

type Progress = Callable[[int, int], None]
"""Told how many bytes are there, of how many; by one thread at a time."""


def download(
    remote: Readable, files: Sequence[RemoteFile], staging: Path, *, progress: Progress = lambda _done, _total: None
) -> None:
    """Fetch files into a folder under their names.

    What an earlier, interrupted call left in the folder is used, unless the file at the place has changed since.

    Args:
        remote: The place.
        files: Its files.
        staging: Folder that only this caller writes to; made when missing. Holds nothing but the files at the end.
        progress: Told at the start, and after each piece.

    Raises:
        ArtifactError: As the place's `read`; `DISK_FULL`; `DIGEST_MISMATCH` for a file that is not what the place
            says it is.
    """
    with _disk(remote.uri, staging):
        staging.mkdir(parents=True, exist_ok=True)
        keep = {_part(staging, file).name for file in files}
        for path in staging.iterdir():
            if path.name not in keep:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        have = sum(part.stat().st_size for file in files if (part := _part(staging, file)).exists())
        need = sum(file.size for file in files)
        _require_room(remote, need - have, staging)
        arrived = _counter(progress, have, need)
        with ThreadPoolExecutor(WORKERS, thread_name_prefix="fetch") as pool:
            jobs = [pool.submit(_fetch, remote, file, _part(staging, file), arrived) for file in files]
            try:
                for job in jobs:
                    job.result()
            finally:
                pool.shutdown(cancel_futures=True)
        for file in files:
            (staging / file.name).parent.mkdir(parents=True, exist_ok=True)
            _part(staging, file).rename(staging / file.name)


@contextmanager
def _disk(uri: str, folder: Path) -> Iterator[None]:
    """Turn a full disk into our error."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL_DISK:
            raise disk_full(uri, folder, "the disk ran full while fetching") from error
        raise


def disk_full(uri: str, folder: Path, what: str) -> ArtifactError:
    """Return the error for a volume without room."""
    return ArtifactError(
        Reason.DISK_FULL,
        f"uri {uri}: {what} into {folder.parent}; use a larger volume or remove what lies there",
    )


def _part(staging: Path, file: RemoteFile) -> Path:
    """Return the file of unfinished bytes; its name changes with the content at the place."""
    key = hashlib.sha256(f"{file.name}\0{file.size}\0{file.tag}".encode()).hexdigest()[:24]
    return staging / f".{key}.part"


def _counter(progress: Progress, have: int, total: int) -> Callable[[int], None]:
    """Return what threads call with the bytes that have arrived."""
    lock = threading.Lock()
    done = have

    def arrived(count: int) -> None:
        nonlocal done
        with lock:
            done += count
            progress(done, total)

    arrived(0)
    return arrived


def _require_room(remote: Readable, need: int, staging: Path) -> None:
    free = shutil.disk_usage(staging).free
    if need > free:
        raise disk_full(remote.uri, staging, f"{need} bytes are needed and {free} free")


def _fetch(remote: Readable, file: RemoteFile, part: Path, arrived: Callable[[int], None]) -> None:
    with part.open("ab") as stream:
        start = stream.tell()
        if start:
            log.info("%s of %s goes on at byte %d of %d", file.name, remote.uri, start, file.size)
        while start < file.size:
            length = min(PIECE_BYTES, file.size - start)
            piece = _read(remote, file, start, length)
            if len(piece) != length:
                raise ArtifactError(
                    Reason.SOURCE_UNREACHABLE,
                    f"uri {remote.uri}: {file.name} ended at byte {start + len(piece)} of {file.size}; tried again",
                )
            stream.write(piece)
            stream.flush()
            start += length
            arrived(length)
    if file.sha256 is not None and (found := sha256_of(part)) != file.sha256:
        part.unlink()
        raise ArtifactError(
            Reason.DIGEST_MISMATCH,
            f"uri {remote.uri}: {file.name} has sha256 {found[:12]}…, the place says {file.sha256[:12]}…; upload it"
            " again",
        )


def _read(remote: Readable, file: RemoteFile, start: int, length: int) -> bytes:
    for left in reversed(range(remote.attempts)):
        try:
            return remote.read(file, start, length)
        except ArtifactError as error:
            if error.reason is not Reason.SOURCE_UNREACHABLE or not left:
                raise
            log.info("a piece is fetched again: %s", error)
    raise AssertionError("unreachable")


def sha256_of(path: Path) -> str:
    """Return the checksum of a file in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
