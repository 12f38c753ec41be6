"""Zip archives of strangers, unpacked by the rules of `archives`."""

import stat
import struct
import zipfile
import zlib
from pathlib import Path
from typing import IO, Final

from whetstone_artifacts.archives import Allowance, ArchiveError, BoundedStream, Destination, names_are_free

_DIRECTORY_BYTES: Final = 32 << 20
"""Bytes of the list of entries, at most: the library reads it at once, and keeps more in memory than that."""
_LINK_BYTES: Final = 4096
_TAKEN: Final = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
"""Methods of compression that give no more bytes at once than are asked for."""
_ENCRYPTED: Final = 0x1
_BROKEN: Final = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    ValueError,
    OverflowError,
    # Among them NotImplementedError, for features that the library lacks.
    RuntimeError,
)


def unpack_zip(stream: IO[bytes], folder: Path, allowance: Allowance) -> None:
    """Unpack a zip archive.

    Files lose owners and times; of a file's mode only whether it is a program is kept.

    Args:
        stream: The archive; it can be read from any place.
        folder: Folder to fill; it exists, and nobody else writes to it.
        allowance: What may be unpacked; it becomes less.

    Raises:
        ArchiveError: It is no zip archive, holds what would lead out of the folder, is no file, folder or link, is
            encrypted, compressed in an unusual way, or too much. OSError of a full disk passes through.
    """
    target = Destination(folder, allowance)
    bounded = BoundedStream(stream, _DIRECTORY_BYTES)
    try:
        with names_are_free(), zipfile.ZipFile(bounded) as archive:
            for entry in archive.infolist():
                allowance.take(entry.file_size)
                _unpack_entry(archive, entry, target)
            target.finish()
    except _BROKEN as error:
        raise ArchiveError(f"it is no zip archive that can be unpacked ({error})") from error


def _unpack_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, target: Destination) -> None:
    if "\\" in entry.orig_filename:
        raise ArchiveError(f"the name {entry.orig_filename!r} has backslashes; pack the folder with slashes in names")
    # The library cuts a name off at its first NUL.
    name = target.place(entry.orig_filename)
    if entry.is_dir():
        target.make_folder(name)
        return
    if entry.flag_bits & _ENCRYPTED:
        raise ArchiveError(f"{entry.filename} is encrypted; pack the folder without a password")
    if entry.compress_type not in _TAKEN:
        raise ArchiveError(
            f"{entry.filename} is compressed by method {entry.compress_type}; pack the folder by deflate, as usual"
        )
    mode = entry.external_attr >> 16
    kind = stat.S_IFMT(mode)
    with archive.open(entry) as source:
        if kind == stat.S_IFLNK:
            target.links[name] = _link_target(entry, source)
        elif kind in (0, stat.S_IFREG):
            target.write(name, source, program=bool(mode & 0o100))
        else:
            raise ArchiveError(f"{entry.filename} is neither file, folder nor link; leave it out")


def _link_target(entry: zipfile.ZipInfo, source: IO[bytes]) -> str:
    if not 0 < entry.file_size <= _LINK_BYTES:
        raise ArchiveError(f"{entry.filename} is a link to a name of {entry.file_size} bytes; leave it out")
    return source.read().decode()
