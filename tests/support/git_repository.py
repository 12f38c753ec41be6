"""A git repository of a test's own, served over the loopback by git's own daemon."""

import json
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.waiting import eventually
from whetstone_dev.commands import run

_AUTHOR = ("-c", "user.name=Tester", "-c", "user.email=tester@example.com")


class GitRepository:
    """A repository with one branch, `main`.

    Args:
        folder: Its work tree.
        url: Where it is served.
    """

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        folder.mkdir()
        run(["git", "init", "--quiet", "--initial-branch", "main", folder])

    def commit(self, files: Mapping[str, str | list[Any] | None]) -> str:
        """Commit files, each a text, a list of objects, or None to delete it; return the commit."""
        for name, content in files.items():
            path = self.folder / name
            if content is None:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            # As JSON, which is YAML: PyYAML writes the text `1e-3` without quotes, and Go reads a number.
            several = {"apiVersion": "v1", "kind": "List", "items": content}
            path.write_text(content if isinstance(content, str) else json.dumps(several))
        self._git("add", "--all")
        self._git(*_AUTHOR, "commit", "--quiet", "--message", "Change")
        return self.head()

    def revert(self) -> str:
        """Revert the last commit; return the new one."""
        self._git(*_AUTHOR, "revert", "--no-edit", "HEAD")
        return self.head()

    def head(self) -> str:
        """Return the newest commit."""
        return self._git("rev-parse", "HEAD").strip()

    def _git(self, *arguments: str) -> str:
        return run(["git", "-C", self.folder, *arguments])


@contextmanager
def served_repository(folder: Path) -> Iterator[GitRepository]:
    """Serve a new repository in a folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    repository = GitRepository(folder / "repository", f"git://127.0.0.1:{port}/repository")
    program = Path(run(["git", "--exec-path"]).strip()) / "git-daemon"
    command = [program, "--export-all", "--reuseaddr", "--listen=127.0.0.1", f"--port={port}", f"--base-path={folder}"]
    daemon = subprocess.Popen([*command, folder])
    try:
        eventually(lambda: _listens(port), what="git's daemon")
        yield repository
    finally:
        daemon.terminate()
        daemon.wait(30)


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
