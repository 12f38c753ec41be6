"""Tasks in git repositories, at a commit."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from whetstone_api.vocabulary import Reason

from whetstone_artifacts.errors import ArtifactError

COMMIT: Final = re.compile(r"^[0-9a-f]{40}$")
_SECONDS: Final = 1800
_SHOWN: Final = 300


def check_out(url: str, revision: str, folder: Path, paths: Sequence[str] = ()) -> str:
    """Fetch one commit of a repository into a folder, without its history.

    Args:
        url: Anything that git can fetch from: https, ssh, or a mirror on disk. `git config url.<mirror>.insteadOf`
            sends it elsewhere.
        revision: A commit, or a branch or tag, which is resolved now.
        folder: Working folder to make; git's own data is removed from it.
        paths: Folders that are needed; all when empty.

    Returns:
        The commit.

    Raises:
        ArtifactError: `SOURCE_UNREACHABLE` or `SOURCE_NOT_FOUND`.
    """
    if shutil.which("git") is None:
        raise ArtifactError(Reason.SOURCE_UNREACHABLE, f"{url}: git is not installed; install it or use a bundle")
    folder.mkdir(parents=True, exist_ok=True)
    _git(url, folder, "init", "--quiet")
    fetched = _try(folder, "fetch", "--quiet", "--depth=1", url, revision)
    if fetched is not None and COMMIT.match(revision):
        # Some servers give no single commits: then the branches, of which it must be part.
        fetched = _try(folder, "fetch", "--quiet", url, "+refs/*:refs/mirror/*")
    if fetched is not None:
        raise ArtifactError(
            Reason.SOURCE_UNREACHABLE,
            f"{url} at {revision} cannot be fetched: {fetched}; check url, revision and network, or name a mirror with"
            " git config url.MIRROR.insteadOf URL",
        )
    wanted = revision if COMMIT.match(revision) else "FETCH_HEAD"
    commit = _git(url, folder, "rev-parse", f"{wanted}^{{commit}}").strip()
    _git(url, folder, "checkout", "--quiet", commit, "--", *(paths or ["."]))
    shutil.rmtree(folder / ".git")
    return commit


def _git(url: str, folder: Path, *arguments: str) -> str:
    done = _run(folder, *arguments)
    if done.returncode:
        what = " ".join(done.stderr.split())[-_SHOWN:]
        raise ArtifactError(Reason.SOURCE_NOT_FOUND, f"{url}: {what}; correct revision or path")
    return done.stdout


def _try(folder: Path, *arguments: str) -> str | None:
    done = _run(folder, *arguments)
    return " ".join(done.stderr.split())[-_SHOWN:] if done.returncode else None


def _run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    # Nobody is there to type a password.
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_LFS_SKIP_SMUDGE": "0"}
    return subprocess.run(  # noqa: S603 - no shell
        ["git", "-C", str(folder), *arguments],  # noqa: S607 - the user's own git
        capture_output=True,
        text=True,
        env=environment,
        timeout=_SECONDS,
        check=False,
    )
