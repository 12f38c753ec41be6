"""Archives of strangers, unpacked so that nothing lands outside the folder and nothing grows without bound."""

import bz2
import errno
import gzip
import lzma
import posixpath
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Final, Protocol

FOLDER_BYTES: Final = 8 << 30
"""Bytes of a folder that is fetched or unpacked, at most."""
FOLDER_FILES: Final = 500_000
"""Entries of such a folder, at most."""
_READ_BYTES: Final = 16 << 20
"""Bytes of one read, at most: a header may claim any length, and the library reads it at once."""
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


class Stream(Protocol):
    """What archives are read from."""

    def read(self, size: int = -1, /) -> bytes: ...
    def seek(self, offset: int, whence: int = 0, /) -> int: ...
    def tell(self) -> int: ...


@dataclass(frozen=True)
class BoundedStream:
    """A stream that gives no more than so many bytes at once.

    Args:
        stream: The stream.
        limit: Bytes of one read, at most.
    """

    stream: Stream
    limit: int = _READ_BYTES

    def read(self, size: int = -1) -> bytes:
        """Return so many bytes.

        Raises:
            ArchiveError: They are too many.
        """
        if size > self.limit:
            raise ArchiveError(f"a header in it claims {size} bytes; pack the folder again")
        found = self.stream.read(size if size >= 0 else self.limit + 1)
        if len(found) > self.limit:
            raise ArchiveError(f"a part of it has more than {self.limit} bytes; pack the folder again")
        return found

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move, and return the place."""
        return self.stream.seek(offset, whence)

    def tell(self) -> int:
        """Return the place."""
        return self.stream.tell()

    def seekable(self) -> bool:
        """Say that it can be read from any place."""
        return True


@dataclass
class Destination:
    """The folder that an archive is unpacked into.

    Args:
        folder: It exists, and nobody else writes to it.
        allowance: What may be unpacked; it becomes less.
    """

    folder: Path
    allowance: Allowance
    links: dict[str, str] = field(default_factory=dict)
    """Target by the path of each symbolic link. They are made last, so that nothing is written through one."""

    @staticmethod
    def place(name: str) -> str:
        """Return the path in the folder that an entry names.

        Raises:
            ArchiveError: It is outside.
        """
        if "\0" in name or name.startswith("/") or ".." in PurePosixPath(name).parts:
            raise ArchiveError(f"the name {name!r} leads out of the folder; pack the folder by relative names")
        return posixpath.normpath(name)

    def make_folder(self, name: str) -> None:
        """Make a folder at a place."""
        (self.folder / name).mkdir(parents=True, exist_ok=True)

    def write(self, name: str, source: IO[bytes], *, program: bool) -> None:
        """Write a file at a place; of its mode only whether it is a program is kept."""
        path = self._free(name)
        with path.open("xb") as target:
            shutil.copyfileobj(source, target)
        path.chmod(0o755 if program else 0o644)

    def copy(self, source: str, name: str) -> None:
        """Make a hard link's file a copy of the file that came before it.

        Raises:
            ArchiveError: There is none, or it is too large.
        """
        original = self.folder / source
        if not original.is_file():
            raise ArchiveError(f"{name} is a hard link to a file that is not before it; pack the folder again")
        self.allowance.take(original.stat().st_size)
        shutil.copy(original, self._free(name))

    def finish(self) -> None:
        """Make the links.

        Raises:
            ArchiveError: One leads out of the folder, or by another link.
        """
        for name, target in self.links.items():
            self._link(name, target)

    def _free(self, name: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        return path

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


@contextmanager
def names_are_free() -> Iterator[None]:
    """Tell an entry whose name cannot be given to a file.

    Raises:
        ArchiveError: There is one.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _NAMES:
            raise
        raise ArchiveError(f"an entry cannot be written ({error.strerror}): its name is taken or too long") from error


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
    target = Destination(folder, allowance)
    try:
        with (
            names_are_free(),
            tarfile.open(fileobj=BoundedStream(_decompressed(stream)), mode="r:") as archive,  # type: ignore[call-overload]
        ):
            while (member := archive.next()) is not None:
                # The library would keep every header in memory.
                archive.members.clear()
                allowance.take(member.size if member.isreg() else 0)
                _unpack_member(archive, member, target)
            target.finish()
    except _BROKEN as error:
        raise ArchiveError(f"it is no tar archive that can be unpacked ({error})") from error


def _decompressed(stream: IO[bytes]) -> Stream:
    magic = stream.read(6)
    stream.seek(0)
    if magic.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=stream)
    if magic.startswith(b"BZh"):
        return bz2.BZ2File(stream)
    return lzma.LZMAFile(stream) if magic.startswith(b"\xfd7zXZ") else stream


def _unpack_member(archive: tarfile.TarFile, member: tarfile.TarInfo, target: Destination) -> None:
    name = target.place(member.name)
    if member.isdir():
        target.make_folder(name)
    elif member.issym():
        target.links[name] = member.linkname
    elif member.islnk():
        target.copy(target.place(member.linkname), name)
    elif member.isreg():
        source = archive.extractfile(member)
        if source is None:
            raise ArchiveError(f"{member.name} has no content; pack the folder again")
        target.write(name, source, program=bool(member.mode & 0o100))
    else:
        raise ArchiveError(f"{member.name} is neither file, folder nor link; leave it out")
