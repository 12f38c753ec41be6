"""Files that appear whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """Give a sibling to write to, which takes the file's place at the end of the block.

    When the block fails, the file stays as it was.

    Args:
        path: The file; its folder exists.
        durable: Whether it outlives the machine's end too. False for what is written often and can be made anew.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    yield temporary
    if durable:
        sync(temporary)
    temporary.replace(path)
    if durable:
        sync(path.parent)


def sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
