"""Copies a folder out of a pod: tar over exec, with a checksum of every file on both sides."""

import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final

from whetstone_cli.kubectl import Kubectl, KubectlError, failure

_ESCAPED: Final = re.compile(r"\\([\\nr])")
_CHARACTERS: Final = {"\\": "\\", "n": "\n", "r": "\r"}
_SUM_CHARACTERS: Final = 64
_SUMS: Final = 'cd "$1" && find . -type f -exec sha256sum {} +'


class CopyError(Exception):
    """The copy is not what lies in the pod; the message names the file."""


def copy_folder(kubectl: Kubectl, pod: str, folder: str, target: Path, progress: Callable[[int, int], None]) -> int:
    """Copy a folder; links and devices in it are left out.

    Args:
        kubectl: The pod's namespace.
        pod: Name of the pod.
        folder: The folder in it.
        target: Folder that is made; it appears when everything is there and right.
        progress: Gets the files that came and those that there are.

    Returns:
        The number of files.

    Raises:
        CopyError: A file is missing or differs.
        KubectlError: The connection failed.
    """
    sums = _sums(
        kubectl.run("exec", pod, "--", "sh", "-c", 'cd "$1" && find . -type f -exec sha256sum {} +', "sh", folder)
    )
    if not sums:
        raise CopyError(f"{folder} holds no file")
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    with tempfile.TemporaryFile() as errors:
        process = kubectl.open("exec", pod, "--", "tar", "-cf", "-", "-C", folder, ".", errors=errors)
        assert process.stdout is not None
        try:
            _unpack(process.stdout, partial, lambda done: progress(done, len(sums)))
        except (tarfile.TarError, EOFError) as error:
            _end(process)
            raise KubectlError(_complaint(errors) or f"the connection ended in the middle: {error}") from error
        finally:
            _end(process)
        if process.returncode:
            raise KubectlError(_complaint(errors) or f"tar ended with {process.returncode}")
    for name, wanted in sums.items():
        path = partial / name
        if not path.is_file():
            raise CopyError(f"{name} did not arrive")
        with path.open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != wanted:
                raise CopyError(f"{name} arrived changed")
    partial.rename(target)
    return len(sums)


def _sums(text: str) -> dict[str, str]:
    """Read what sha256sum writes; it marks a name with a line break in it by a backslash before the sum."""
    sums = {}
    for line in text.splitlines():
        escaped = line.startswith("\\")
        line = line.removeprefix("\\")
        name = line[_SUM_CHARACTERS + 2 :]
        sums[_ESCAPED.sub(lambda found: _CHARACTERS[found[1]], name) if escaped else name] = line[:_SUM_CHARACTERS]
    return sums


def _unpack(stream: IO[bytes], target: Path, progress: Callable[[int], None]) -> None:
    """Unpack plain files and folders only: what a sandbox wrote may hold links that lead out."""
    target.mkdir(parents=True)
    done = 0
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            if not (member.isreg() or member.isdir()):
                sys.stderr.write(f"whetstone: {member.name} is no plain file and is left out\n")
                continue
            archive.extract(member, target, filter="data")
            done += member.isreg()
            progress(done)


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.stdout is not None:
        process.stdout.close()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _complaint(errors: IO[bytes]) -> str:
    errors.seek(0)
    text = errors.read().decode(errors="replace")
    return failure(text) if text.strip() else ""
