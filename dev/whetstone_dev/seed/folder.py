"""Put a model's folder in place whole or not at all, with a record of what it was made from."""

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

RECORD: Final = "whetstone-model.json"


class SeedError(Exception):
    """The folder cannot be made; the message says what to do."""


def place(out: Path, record: Mapping[str, str], write: Callable[[Path], None]) -> bool:
    """Make the folder `out` with what `write` puts into it, unless it is there already.

    `record` says what the model is made from; it is kept in `out` and decides whether `out` is what is
    asked for. `write` fills an empty temporary folder beside `out`, which is then renamed. Returns whether
    anything was made.
    Raises SeedError when `out` holds something else.
    """
    if _holds(out, record):
        return False
    out.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        write(staging)
        (staging / RECORD).write_text(json.dumps(dict(record), indent=2, sort_keys=True) + "\n")
        _readable_by_all(staging)
        try:
            staging.rename(out)
        except OSError as error:
            # Two Jobs may race for the same volume; both make the same folder.
            if _holds(out, record):
                return False
            raise SeedError(f"{out}: cannot be put in place ({error}); name a new folder inside the volume") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return True


def _holds(out: Path, record: Mapping[str, str]) -> bool:
    """Say whether `out` is the model of `record`, not absent or empty; anything else is an error."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    try:
        found = json.loads((out / RECORD).read_text())
    except (OSError, ValueError):
        found = None
    if found != dict(record):
        raise SeedError(f"{out}: holds something else (no {RECORD} of this model); name another --out folder")
    return True


def _readable_by_all(folder: Path) -> None:
    # Servers and trainers run under other user ids than the Job that fills the volume.
    folder.chmod(0o755)
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
