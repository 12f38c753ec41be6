"""Tar archives of strangers, unpacked so that nothing lands outside the folder and nothing grows without bound."""

import bz2
import errno
import gzip
import lzma
import posixpath
import shutil
import tarfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Final, Protocol

FOLDER_BYTES: Final = 8 << 30
"""Bytes of a folder that is fetched or unpacked, at most."""
FOLDER_FILES: Final = 500_000
"""Entries of such a folder, at most."""
_READ_BYTES: Final = 16 << 20
"""Bytes of one read, at most: an archive's header may claim any length, and the library reads it at once."""
_BROKEN: Final = (tarfile.TarError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, EOFError, ValueError)
_NAMES: Final = frozenset({errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ})


class ArchiveError(Exception):
    """An archive cannot be unpacked, or must not be."""


@dataclass(kw_only=True)
class Allowance:
    """What may still be unpacked.

    Args:
        size: Bytes.
        files: Entries, folders included.
    """

    size: int = FOLDER_BYTES
    files: int = FOLDER_FILES

    def take(self, size: int) -> None:
        """Take an entry of so many bytes.

        Raises:
            ArchiveError: It is one too many, or too large.
        """
        self.size -= size
        self.files -= 1
        if self.size < 0 or self.files < 0:
            raise ArchiveError(
                f"it unpacks to more than {FOLDER_BYTES >> 30} GiB or {FOLDER_FILES} entries; leave out what is not"
                " needed, or put the folder in a claim (pvc://)"
            )


class _Stream(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...
    def seek(self, offset: int, whence: int = 0, /) -> int: ...
    def tell(self) -> int: ...


@dataclass(frozen=True)
class _Bounded:
    """A stream that gives no more than `_READ_BYTES` at once."""

    stream: _Stream

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _READ_BYTES:
            raise ArchiveError(f"a header in it claims {size} bytes; pack the folder again")
        return self.stream.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self.stream.seek(offset, whence)

    def tell(self) -> int:
        return self.stream.tell()


def unpack_tar(stream: IO[bytes], folder: Path, allowance: Allowance) -> None:
    """Unpack a tar archive, compressed or not.

    Files and folders lose their owners; of a file's mode only whether it is a program is kept.

    Args:
        stream: The archive, at its start.
        folder: Folder to fill; it exists, and nobody else writes to it.
        allowance: What may be unpacked; it becomes less.

    Raises:
        ArchiveError: It is no tar archive, holds what would lead out of the folder, is no file, folder or link, or is
            too much. OSError of a full disk passes through.
    """
    try:
        with tarfile.open(fileobj=_Bounded(_decompressed(stream)), mode="r:") as archive:  # type: ignore[call-overload]
            _Unpacking(archive, folder, allowance).run()
    except _BROKEN as error:
        raise ArchiveError(f"it is no tar archive that can be unpacked ({error})") from error
    except OSError as error:
        if error.errno not in _NAMES:
            raise
        raise ArchiveError(f"an entry cannot be written ({error.strerror}): its name is taken or too long") from error


def _decompressed(stream: IO[bytes]) -> _Stream:
    magic = stream.read(6)
    stream.seek(0)
    if magic.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=stream)
    if magic.startswith(b"BZh"):
        return bz2.BZ2File(stream)
    return lzma.LZMAFile(stream) if magic.startswith(b"\xfd7zXZ") else stream


@dataclass
class _Unpacking:
    archive: tarfile.TarFile
    folder: Path
    allowance: Allowance
    links: dict[str, str] = field(default_factory=dict)
    """Target by the path of each symbolic link. They are made last, so that nothing is written through one."""

    def run(self) -> None:
        while (member := self.archive.next()) is not None:
            # The library would keep every header in memory.
            self.archive.members.clear()  # type: ignore[attr-defined]
            self.allowance.take(member.size if member.isreg() else 0)
            self._entry(member, self._place(member.name))
        for name, target in self.links.items():
            self._link(name, target)

    def _entry(self, member: tarfile.TarInfo, name: str) -> None:
        path = self.folder / name
        if member.isdir():
            path.mkdir(parents=True, exist_ok=True)
        elif member.issym():
            self.links[name] = member.linkname
        elif member.islnk():
            self._copy(self.folder / self._place(member.linkname), path, name)
        elif member.isreg():
            self._write(member, path)
        else:
            raise ArchiveError(f"{member.name} is neither file, folder nor link; leave it out")

    def _place(self, name: str) -> str:
        if "\0" in name or name.startswith("/") or ".." in PurePosixPath(name).parts:
            raise ArchiveError(f"the name {name!r} leads out of the folder; pack the folder by relative names")
        return posixpath.normpath(name)

    def _write(self, member: tarfile.TarInfo, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        source = self.archive.extractfile(member)
        if source is None:
            raise ArchiveError(f"{member.name} has no content; pack the folder again")
        with path.open("xb") as target:
            shutil.copyfileobj(source, target)
        path.chmod(0o755 if member.mode & 0o100 else 0o644)

    def _copy(self, source: Path, path: Path, name: str) -> None:
        """Make a hard link's file a copy of the file that came before it."""
        if not source.is_file():
            raise ArchiveError(f"{name} is a hard link to a file that is not before it; pack the folder again")
        self.allowance.take(source.stat().st_size)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        shutil.copy(source, path)

    def _link(self, name: str, target: str) -> None:
        lands = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
        plain = posixpath.normpath(target) == target.rstrip("/").removeprefix("./")
        outside = not plain or target.startswith("/") or ".." in PurePosixPath(lands).parts
        around = PurePosixPath(name).is_relative_to(lands)
        if outside or around or self._through(lands) or self._through(posixpath.dirname(name)):
            raise ArchiveError(f"{name} is a link to {target!r}: outside, around itself or by a link; leave it out")
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)

    def _through(self, place: str) -> bool:
        """Return whether a link lies on the way to a place, or at it."""
        path = PurePosixPath(place)
        return any(str(part) in self.links for part in (path, *path.parents))
