"""Full volumes: told by folder and fix, whatever library has run into them."""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from whetstone_trainer.errors import NoRoomError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the kernel answers to a write for which there is no room: disk, quota, limit of a file's size."""
FULL_WORDS = re.compile(rf"os error ({'|'.join(map(str, FULL))})\b|PytorchStreamWriter failed|inline_container")
"""How safetensors and torch, which pass no `OSError` on, say it."""
LAST_WORDS = 200
"""Characters of an error that are shown."""


@contextmanager
def naming_a_full_disk(what: str, folder: Path, fix: str) -> Iterator[None]:
    """Within this block, an error that says that something found no room names it, the folder and the fix.

    Args:
        what: What is written, as in `a checkpoint`.
        folder: Where to.
        fix: What to do, and what happens then.

    Raises:
        NoRoomError: There was no room.
    """
    try:
        yield
    except Exception as error:
        if getattr(error, "errno", None) not in FULL and not FULL_WORDS.search(str(error)):
            raise
        words = f"{type(error).__name__}: {str(error)[:LAST_WORDS]}"
        raise NoRoomError(f"no room for {what} in {folder} ({words}); {fix}") from error
