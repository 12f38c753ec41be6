"""Harbor's commands and copies over anything that runs scripts of a shell."""

import shlex
from abc import abstractmethod
from collections.abc import Awaitable, Mapping
from pathlib import Path, PurePosixPath

from harbor.environments.base import BaseEnvironment, ExecResult

from whetstone_agent.environment import transfer
from whetstone_agent.environment.exec import Completed, RunsScripts


class CommandEnvironment(BaseEnvironment):
    """A sandbox whose commands and copies are scripts that run in it."""

    @abstractmethod
    def scripts(self) -> RunsScripts:
        """Return what runs scripts in the sandbox.

        Raises:
            SandboxLostError: The sandbox has not started, or was stopped.
        """

    async def working[T](self, work: Awaitable[T]) -> T:
        """Do a piece of work in the sandbox, and explain its failure where the sandbox is the cause."""
        return await work

    async def checked(self, done: Completed) -> Completed:
        """Look at how a command ended before anybody else does."""
        return done

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a command with bash, or sh where there is none.

        Raises:
            ExecTransportError, SandboxLostError: The infrastructure failed; the trial is void.
        """
        script = command_script(
            command,
            cwd=cwd or self.task_env_config.workdir,
            env=self._merge_env(env) or {},
            user=self._resolve_user(user),
        )
        done = await self.checked(await self.working(self.scripts().run(script, timeout_seconds=timeout_sec)))
        return ExecResult(
            stdout=done.stdout.decode(errors="replace"),
            stderr=done.stderr.decode(errors="replace"),
            return_code=done.exit_code,
        )

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Copy a file into the sandbox."""
        await self.working(transfer.upload_file(self.scripts(), Path(source_path), PurePosixPath(target_path)))

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Copy what a folder holds into a folder of the sandbox."""
        await self.working(transfer.upload_dir(self.scripts(), Path(source_dir), PurePosixPath(target_dir)))

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copy a file out of the sandbox."""
        await self.working(transfer.download_file(self.scripts(), PurePosixPath(source_path), Path(target_path)))

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copy what a folder of the sandbox holds out of it."""
        await self.working(transfer.download_dir(self.scripts(), PurePosixPath(source_dir), Path(target_dir)))


def command_script(command: str, *, cwd: str | None, env: Mapping[str, str], user: str | int | None) -> str:
    """Return the script that runs a command as Harbor asks for it.

    Args:
        command: For bash.
        cwd: Working directory; the image's when absent.
        env: Variables that are added.
        user: Name or number. Only root can become another user, so in an image of a plain user all runs as that one.
    """
    lines = [f"export {name}={shlex.quote(value)}" for name, value in sorted(env.items())]
    if cwd:
        lines.append(f"cd {shlex.quote(cwd)} || exit 1")
    if user is None or user in ("root", 0, "0"):
        return "\n".join([*lines, command])
    name = shlex.quote(str(user))
    lines.append(
        f'if [ "$(id -u)" = 0 ]; then exec su -s "$(command -v bash || command -v sh)" "$(id -un {name})"'
        f" -c {shlex.quote(command)}; fi"
    )
    return "\n".join([*lines, command])
