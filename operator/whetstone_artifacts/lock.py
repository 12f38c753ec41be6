"""One writer a folder, enforced by a lock file beside the place."""

import fcntl
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from whetstone_api.vocabulary import Reason

from whetstone_artifacts.errors import OutputLockedError

POLL_SECONDS = 0.2


@contextmanager
def output_lock(place: Path, *, wait_seconds: float = 30.0) -> Iterator[Path]:
    """Hold the only right to write to a place.

    The kernel frees the lock when its holder dies, so a killed pod never blocks the next one. The lock file stays:
    removing it would let two processes lock two different files of the same name.

    Args:
        place: The output folder; its parents are made.
        wait_seconds: How long to wait for a holder that is about to end.

    Raises:
        OutputLockedError: Another process still holds it. Trying again later is right.
    """
    with _lock_file(place) as (path, stream):
        _wait(lambda: _take(stream, fcntl.LOCK_EX), place=place, path=path, seconds=wait_seconds)
        yield path


@contextmanager
def shared_lock(place: Path, *, holder: str, wait_seconds: float = 30.0) -> Iterator[Path]:
    """Hold the right to write to a place together with all processes of one holder, and with nobody else.

    Args:
        place: The output folder; its parents are made.
        holder: What those processes have in common, in one line.
        wait_seconds: How long to wait for another holder that is about to end.

    Raises:
        OutputLockedError: Another holder's process is still at it.
    """
    wanted = holder.encode()
    with _lock_file(place) as (path, stream):

        def take() -> bool:
            # Who is alone writes its name; who is not looks whose name stands there. Between giving up the exclusive
            # lock and getting the shared one, another holder may come first: so the name is read again.
            if _take(stream, fcntl.LOCK_EX):
                os.ftruncate(stream.fileno(), 0)
                os.write(stream.fileno(), wanted)
            if not _take(stream, fcntl.LOCK_SH):
                return False
            if os.pread(stream.fileno(), len(wanted) + 1, 0) == wanted:
                return True
            fcntl.flock(stream, fcntl.LOCK_UN)
            return False

        _wait(take, place=place, path=path, seconds=wait_seconds)
        yield path


@contextmanager
def _lock_file(place: Path) -> Iterator[tuple[Path, IO[bytes]]]:
    place.parent.mkdir(parents=True, exist_ok=True)
    path = place.with_name(f".{place.name}.lock")
    with path.open("ab+", buffering=0) as stream:
        yield path, stream


def _take(stream: IO[bytes], kind: int) -> bool:
    try:
        fcntl.flock(stream, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait(take: Callable[[], bool], *, place: Path, path: Path, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not take():
        if time.monotonic() >= deadline:
            raise OutputLockedError(
                Reason.OUTPUT_OCCUPIED,
                f"another process is writing to {place} (lock file {path}); it is waited for",
            )
        # Two that ask in step would get in each other's way for ever.
        time.sleep(POLL_SECONDS * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
