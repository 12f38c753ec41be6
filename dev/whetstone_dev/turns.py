"""Turns of processes that make the same thing once: of two test workers one builds, and the other finds it."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from whetstone_dev.places import cache_folder


@contextmanager
def turn(name: str) -> Iterator[None]:
    """Be the only process that makes something; others wait. The lock ends with its process.

    Args:
        name: What is made, as a file's name.
    """
    folder = cache_folder() / "turns"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
