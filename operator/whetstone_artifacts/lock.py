"""One writer a folder, enforced by a lock file beside the place."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
    place.parent.mkdir(parents=True, exist_ok=True)
    path = place.with_name(f".{place.name}.lock")
    with path.open("a") as stream:
        deadline = time.monotonic() + wait_seconds
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    raise OutputLockedError(
                        Reason.OUTPUT_OCCUPIED,
                        f"another process is writing to {place} (lock file {path}); it is waited for",
                    ) from error
                time.sleep(POLL_SECONDS)
        yield path
