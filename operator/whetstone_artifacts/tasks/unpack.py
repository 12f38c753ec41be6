"""Task sets that come in one file: a tar or zip archive, or rows of Parquet with a tar archive each."""

import io
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from whetstone_api.source import PARQUET, ZIP
from whetstone_api.vocabulary import Reason

from whetstone_artifacts.archives import FOLDER_BYTES, Allowance, ArchiveError, unpack_tar
from whetstone_artifacts.errors import FULL_DISK, ArtifactError
from whetstone_artifacts.tasks.folder import CONFIG
from whetstone_artifacts.zip_archives import unpack_zip

_NAME: Final = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
_ROWS: Final = 16
"""Rows of Parquet in memory at a time."""


def unpack_tasks(file: Path, folder: Path) -> None:
    """Unpack a task set.

    Args:
        file: A `.tar`, `.tar.gz`, `.tgz` or `.zip` of task folders, or a `.parquet` with the columns `path` (the task's
            name) and `task_binary` (a tar archive of its files), as OpenThoughts publishes them.
        folder: Folder to fill; it exists.

    Raises:
        ArtifactError: `TASKS_INVALID` for a file that is no task set, or must not be unpacked; `DISK_FULL`.
    """
    allowance = Allowance()
    try:
        if file.name.endswith(PARQUET):
            for name, content in _rows(file):
                target = _task_folder(folder, name, file)
                unpack_tar(io.BytesIO(content), target, allowance)
                _flatten(target)
        else:
            unpack = unpack_zip if file.name.endswith(ZIP) else unpack_tar
            with file.open("rb") as stream:
                unpack(stream, folder, allowance)
    except ArchiveError as error:
        raise _invalid(file, str(error)) from error
    except OSError as error:
        if error.errno not in FULL_DISK:
            raise
        message = f"{file.name}: the disk ran full while unpacking into {folder}; give it more room"
        raise ArtifactError(Reason.DISK_FULL, message) from error


def lift(folder: Path) -> Path:
    """Return the folder that holds the task folders: an archive often packs one folder around them."""
    while True:
        entries = [path for path in folder.iterdir() if not path.name.startswith(".")]
        if len(entries) != 1 or not entries[0].is_dir() or (entries[0] / CONFIG).exists():
            return folder
        folder = entries[0]


def _rows(file: Path) -> Iterator[tuple[str, bytes]]:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.ParquetFile(file)
    except pyarrow.ArrowInvalid as error:
        raise _invalid(file, f"it is not Parquet ({error})") from error
    names = table.schema_arrow.names
    if not {"path", "task_binary"} <= set(names):
        raise _invalid(file, f"it lacks the columns path and task_binary (there are {', '.join(names)})")
    groups = range(table.metadata.num_row_groups)
    if sum(table.metadata.row_group(number).total_byte_size for number in groups) > FOLDER_BYTES:
        raise _invalid(file, f"its rows hold more than {FOLDER_BYTES >> 30} GiB")
    try:
        for batch in table.iter_batches(batch_size=_ROWS, columns=["path", "task_binary"]):
            for row in batch.to_pylist():
                yield str(row["path"]), bytes(row["task_binary"])
    except (pyarrow.ArrowException, OSError, TypeError) as error:
        raise _invalid(file, f"its rows cannot be read ({error})") from error


def _task_folder(folder: Path, path: str, file: Path) -> Path:
    name = PurePosixPath(path).name
    if not _NAME.match(name):
        raise _invalid(file, f"row {path!r} has no name that a folder can have")
    target = folder / name
    if target.exists():
        raise _invalid(file, f"two rows are named {name}")
    target.mkdir()
    return target


def _flatten(folder: Path) -> None:
    """Bring a task's files up where its archive holds its folder."""
    inner = list(folder.iterdir())
    if len(inner) == 1 and (inner[0] / CONFIG).is_file():
        aside = folder.with_name(f".{folder.name}")
        inner[0].rename(aside)
        folder.rmdir()
        aside.rename(folder)


def _invalid(file: Path, what: str) -> ArtifactError:
    return ArtifactError(Reason.TASKS_INVALID, f"{file.name}: {what}; give an archive or Parquet file of Harbor tasks")
