"""A stand-in for the trial's pod: processes of this machine in a temporary folder. No isolation; for tests only.

Absolute paths of the sandbox (`/app`, `/logs`, `/tests`, `/solution`) lie below the folder; commands find it in
`$SANDBOX`, and so do the scripts of the tests' own tasks.
"""

import asyncio
import os
import re
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities

_PLACES = re.compile(r"(?<![\w./$}])/(app|logs|tests|solution)\b")


class LocalProcessEnvironment(BaseEnvironment):
    """Runs a trial's commands as plain processes."""

    def __init__(
        self, *args: Any, fail_first: str | None = None, fail_always: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._fail_first = fail_first
        self._fail_always = fail_always
        self._root = Path(tempfile.gettempdir())

    @staticmethod
    def type() -> str:
        return "local-process"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities()

    def _validate_definition(self) -> None:
        pass

    async def start(self, force_build: bool) -> None:
        from whetstone_agent.environment.errors import PodStartError

        if self._fail_always == self.environment_name:
            raise PodStartError("no node has this image")
        if self._fail_first is not None:
            mark = Path(self._fail_first) / self.environment_name
            if not mark.exists():
                mark.parent.mkdir(parents=True, exist_ok=True)
                mark.touch()
                raise PodStartError("no node had room")
        self._root = Path(tempfile.mkdtemp(prefix="sandbox-"))
        (self._root / "app").mkdir()
        await self.ensure_dirs(self._mount_targets(writable_only=True))
        await self._upload_environment_dir_after_start()

    async def stop(self, delete: bool) -> None:
        if self._root.name.startswith("sandbox-"):
            await self.exec("tmux kill-server 2>/dev/null")
            shutil.rmtree(self._root, ignore_errors=True)

    def _inside(self, path: str) -> Path:
        return self._root / path.lstrip("/")

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            _PLACES.sub(rf"{self._root}/\1", command),
            cwd=self._inside(cwd or self.task_env_config.workdir or "/app"),
            env={
                **os.environ,
                **(self._merge_env(env) or {}),
                "SANDBOX": str(self._root),
                "TMUX_TMPDIR": str(self._root),
                "HOME": str(self._root),
            },
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(), timeout_sec)
        except TimeoutError:
            await _kill(process)
            return ExecResult(stdout="", stderr="", return_code=124)
        except asyncio.CancelledError:
            await _kill(process)
            raise
        return ExecResult(stdout=out.decode(), stderr=err.decode(), return_code=process.returncode or 0)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        target = self._inside(target_path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source_path, target)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        shutil.copytree(source_dir, self._inside(target_dir), dirs_exist_ok=True)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        shutil.copy2(self._inside(source_path), target_path)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        shutil.copytree(self._inside(source_dir), target_dir, dirs_exist_ok=True)


async def _kill(process: asyncio.subprocess.Process) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
