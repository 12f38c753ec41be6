"""Copy files into and out of a pod: tar over exec, with a checksum of the whole archive on both sides."""

import asyncio
import hashlib
import secrets
import shlex
import shutil
import tarfile
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path, PurePosixPath
from typing import IO, Final

from whetstone_agent.environment.errors import TransferError
from whetstone_agent.environment.exec import RunsScripts

_CHUNK: Final = 32 << 10
TRANSFER_SECONDS: Final = 600.0
_TAR_CHANGED: Final = 1
"""GNU tar's exit code when a file changed while it was read; the archive is whole."""


async def upload_file(pod: RunsScripts, source: Path, target: PurePosixPath) -> None:
    """Copy one file to the path `target`.

    Raises:
        TransferError: It did not arrive as it was sent.
    """
    await _upload(pod, [(source, target.name)], target.parent)


async def upload_dir(pod: RunsScripts, source: Path, target: PurePosixPath) -> None:
    """Copy what a folder holds into the folder `target`.

    Raises:
        TransferError: It did not arrive as it was sent.
    """
    paths = await asyncio.to_thread(lambda: sorted(source.iterdir()))
    await _upload(pod, [(path, path.name) for path in paths], target)


async def download_file(pod: RunsScripts, source: PurePosixPath, target: Path) -> None:
    """Copy the file `source` of the pod to the path `target`.

    Raises:
        TransferError: It is not there, or did not arrive as it was sent.
    """
    with tempfile.TemporaryDirectory() as folder:
        await _download(pod, source.parent, source.name, Path(folder))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(Path(folder) / source.name, target)


async def download_dir(pod: RunsScripts, source: PurePosixPath, target: Path) -> None:
    """Copy what the folder `source` of the pod holds into the folder `target`.

    Raises:
        TransferError: It is not there, or did not arrive as it was sent.
    """
    await _download(pod, source, ".", target)


async def _upload(pod: RunsScripts, members: list[tuple[Path, str]], target: PurePosixPath) -> None:
    with tempfile.TemporaryFile() as archive:
        digest = await asyncio.to_thread(_pack, archive, members)
        size = archive.tell()
        archive.seek(0)
        place = f"/tmp/.whetstone-{secrets.token_hex(8)}.tar"  # noqa: S108 - in the sandbox, with an unguessable name
        quoted = shlex.quote(str(target))
        script = (
            f"trap 'rm -f {place}' EXIT\n"
            f"mkdir -p {quoted} && head -c {size} >{place} || exit 1\n"
            f"sum=$(sha256sum {place}) || exit 1\n"
            f'[ "${{sum%% *}}" = {digest} ] || {{ echo "checksum $sum" >&2; exit 2; }}\n'
            f"tar -xf {place} -C {quoted}"
        )
        result = await pod.run(script, stdin=_chunks(archive), timeout_seconds=TRANSFER_SECONDS)
    if result.exit_code != 0:
        raise TransferError(f"copy to {target} failed ({result.exit_code}): {_words(result.stderr)}")


async def _download(pod: RunsScripts, folder: PurePosixPath, member: str, target: Path) -> None:
    place = f"/tmp/.whetstone-{secrets.token_hex(8)}.tar"  # noqa: S108 - in the sandbox, with an unguessable name
    script = (
        f"trap 'rm -f {place}' EXIT\n"
        f"tar -cf {place} -C {shlex.quote(str(folder))} {shlex.quote(member)} >&2\ncode=$?\n"
        f'[ $code -le {_TAR_CHANGED} ] && [ -s {place} ] || {{ echo "tar ended with $code" >&2; exit 2; }}\n'
        f"sha256sum {place} >&2 && cat {place}"
    )
    with tempfile.TemporaryFile() as archive:
        digest = hashlib.sha256()

        def keep(chunk: bytes) -> None:
            digest.update(chunk)
            archive.write(chunk)

        result = await pod.run(script, stdout=keep, timeout_seconds=TRANSFER_SECONDS)
        if result.exit_code != 0:
            raise TransferError(f"copy of {folder / member} failed ({result.exit_code}): {_words(result.stderr)}")
        if not result.stderr.rstrip().endswith(f"{digest.hexdigest()}  {place}".encode()):
            raise TransferError(f"copy of {folder / member} arrived changed: {_words(result.stderr)}")
        archive.seek(0)
        await asyncio.to_thread(_unpack, archive, target)


def _pack(archive: IO[bytes], members: list[tuple[Path, str]]) -> str:
    """Write members as a tar archive and return its SHA-256 in hex."""
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path, name in members:
            tar.add(path, arcname=name, filter=_anonymous)
    archive.seek(0)
    return hashlib.file_digest(archive, "sha256").hexdigest()  # type: ignore[arg-type]


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Drop owners: the runner's user means nothing in the sandbox, whose files belong to the sandbox's user."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _unpack(archive: IO[bytes], target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=archive, mode="r:") as tar:
        tar.extractall(target, filter=_harmless)  # noqa: S202 - the filter refuses what leads out


def _harmless(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
    """Leave out what has no content or would lead out of the folder: the archive comes from the agent's sandbox."""
    if not (member.isreg() or member.isdir()):
        return None
    return tarfile.data_filter(member, path)


async def _chunks(archive: IO[bytes]) -> AsyncIterator[bytes]:
    while chunk := archive.read(_CHUNK):
        yield chunk


def _words(text: bytes) -> str:
    return " ".join(text.decode(errors="replace").split())[-500:]
