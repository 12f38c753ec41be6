"""Files and texts that a sandbox may have written: read with bounds, shown without effect."""

import json
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

MAX_FILE_BYTES: Final = 32 << 20
"""A larger file is not read."""
SHOWN_CHARACTERS: Final = 4000
"""Longest text that is shown whole; of a longer one, both ends are."""
_ESCAPES: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[ -/]*[0-~])"
)
"""Control sequences of terminals (ECMA-48): colours, cursor moves, titles, links."""
_INVISIBLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ud800-\udfff\ufeff]"
)
"""Control characters, characters that turn or hide text, and halves of a pair, which no UTF-8 file can hold."""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A text as it is shown.

    Args:
        head: Its beginning; all of it where nothing was cut.
        tail: Its end, where something was cut.
        cut: Characters between the two that are not shown.
    """

    head: str
    tail: str = ""
    cut: int = 0

    @property
    def size(self) -> int:
        """Characters that are shown."""
        return len(self.head) + len(self.tail)

    def __bool__(self) -> bool:
        return bool(self.head)


NOTHING: Final = Shown(head="")
"""No text."""


def clean(text: str) -> str:
    """Return a text without control sequences; other characters that cannot be seen become U+FFFD."""
    return _INVISIBLE.sub("\ufffd", _ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))


def shown(value: object, *, limit: int = SHOWN_CHARACTERS) -> Shown:
    """Return what is shown of a value that should be text.

    Args:
        value: Text as a rule; anything else is shown as JSON.
        limit: Characters at most.
    """
    text = clean(value if isinstance(value, str) else "" if value is None else _json(value))
    if len(text) <= limit:
        return Shown(head=text)
    half = limit // 2
    return Shown(head=text[:half], tail=text[-half:], cut=len(text) - 2 * half)


def read_bytes(path: Path, *, below: Path) -> bytes | None:
    """Read a plain file; None when it is missing, too large, no plain file, or reached through a link.

    A sandbox's files come with its links: one that points outside would put a file of this machine into the page.

    Args:
        path: The file.
        below: Folder that it must lie in.
    """
    try:
        if not path.parent.resolve().is_relative_to(below.resolve()):
            return None
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (OSError, ValueError):
        return None
    with os.fdopen(handle, "rb") as stream:
        state = os.fstat(handle)
        if not stat.S_ISREG(state.st_mode) or state.st_size > MAX_FILE_BYTES:
            return None
        return stream.read(MAX_FILE_BYTES)


def read_text(path: Path, *, below: Path) -> str | None:
    """Read a text as `read_bytes` does; bytes that are no UTF-8 become U+FFFD."""
    data = read_bytes(path, below=below)
    return None if data is None else data.decode(errors="replace")


def read_json(path: Path, *, below: Path) -> dict[str, Any]:
    """Read an object as `read_bytes` does; empty when it is no JSON object."""
    text = read_text(path, below=below)
    try:
        value = json.loads(text or "")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def mapping(value: object) -> dict[str, Any]:
    """Return a value that should be an object; empty when it is not."""
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    """Return a value that should be a list; empty when it is not."""
    return value if isinstance(value, list) else []


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, indent=1)
    except (ValueError, RecursionError):
        return str(type(value))
