"""Trials as processes of the runner's own machine, for CI and laptops. They are isolated from nothing.

Where this process may make namespaces (as root), each trial has a copy-on-write view of the machine's files and its
own process table, so that trials do not see each other's work; a trial still has the network, the devices and the
kernel of the machine, and as root nothing stops it. Elsewhere (a pod under the `restricted` standard) Harbor's folders
are links to the folder of the one trial that runs, and the others wait.
"""

import asyncio
import contextlib
import functools
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

from harbor.environments.capabilities import EnvironmentCapabilities

from whetstone_agent.environment.commands import CommandEnvironment
from whetstone_agent.environment.errors import PodStartError, SandboxLostError
from whetstone_agent.environment.local import LocalScripts, kill_marked

PLACES: Final = ("/app", "/logs", "/tests", "/solution")
"""Folders that tasks and Harbor name by absolute paths."""
SHARED_ROOM: Final = Path("/tmp/whetstone-trial")  # noqa: S108 - the runner's image links to it
"""Where `PLACES` are found when trials run one at a time."""
_lent: list[tuple[Path, Path]] = []
"""Trial and room of the sandboxes that share the links; the last one has them."""
_READY_SECONDS: Final = 20.0
_HOLD: Final = """
set -e
mount -t overlay overlay -o lowerdir=/,upperdir="$1/upper",workdir="$1/work" "$1/root"
mount --rbind /dev "$1/root/dev"
mount --rbind /sys "$1/root/sys"
mount -t proc proc "$1/root/proc"
mount -t tmpfs tmpfs "$1/root/tmp"
cd "$1/root"
mkdir -p app logs tests solution
exec chroot . sh -c 'echo ready; exec sleep infinity'
"""
"""First process of a trial's namespaces: with it everything in them ends."""


@functools.cache
def may_make_namespaces() -> bool:
    """Return whether this process may give trials views of their own."""
    probe = ["unshare", "--mount", "--pid", "--fork", "true"]
    try:
        return subprocess.run(probe, check=False, capture_output=True).returncode == 0  # noqa: S603 - fixed words
    except OSError:
        return False


class ProcessEnvironment(CommandEnvironment):
    """A trial's processes on the runner's machine. The task's image, resources and network mean nothing to it."""

    _turn: "tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None" = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._room: Path | None = None
        self._holder: asyncio.subprocess.Process | None = None
        self._scripts: LocalScripts | None = None
        self._has_turn = False

    @staticmethod
    def type() -> str:
        """Return the environment's name in Harbor's records."""
        return "whetstone-process"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """Return what it can do beyond the basics: nothing, and it limits no network."""
        return EnvironmentCapabilities()

    def _validate_definition(self) -> None:
        pass

    def scripts(self) -> LocalScripts:
        """Return what runs commands as processes."""
        if self._scripts is None:
            raise SandboxLostError(f"the sandbox of {self.session_id} is not running")
        return self._scripts

    async def start(self, force_build: bool) -> None:  # noqa: ARG002 - there is nothing to build
        """Make the trial's folders, wait for its turn where trials share them, and put the task's files there.

        Raises:
            PodStartError: The folders cannot be made.
        """
        room = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="whetstone-trial-"))
        self._room = room
        mark = f"WHETSTONE_TRIAL={room.name}"
        if may_make_namespaces():
            self._scripts = LocalScripts(await self._namespaces(room), mark=mark)
        else:
            await self._take_turn(room)
            self._scripts = LocalScripts([], mark=mark)
        if self.task_env_config.workdir is None:
            self.task_env_config.workdir = PLACES[0]
        workdir = self.task_env_config.workdir
        made = await self.scripts().run(f"mkdir -p {shlex.quote(workdir)}", timeout_seconds=_READY_SECONDS)
        if made.exit_code != 0:
            said = made.stderr.decode(errors="replace").strip()
            raise PodStartError(f"the task's workdir {workdir} cannot be made here: {said}")
        await self.ensure_dirs(self._mount_targets(writable_only=True))
        await self._upload_environment_dir_after_start()

    async def stop(self, delete: bool) -> None:
        """End all processes of the trial, and remove its folders unless `delete` is false."""
        scripts, self._scripts = self._scripts, None
        if scripts is not None:
            await asyncio.to_thread(kill_marked, scripts.mark)
        if self._holder is not None:
            with contextlib.suppress(ProcessLookupError):
                self._holder.kill()
            await self._holder.wait()
            self._holder = None
        if self._room is not None and any(self._room == room for _, room in _lent):
            await self._give_back(self._room)
        if self._room is not None and delete:
            await asyncio.to_thread(shutil.rmtree, self._room, ignore_errors=True)

    async def _namespaces(self, room: Path) -> list[str]:
        """Start the trial's first process; return the command that enters its namespaces."""
        for name in ("upper", "work", "root"):
            (room / name).mkdir()
        unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", _HOLD, "hold", str(room)]
        self._holder = holder = await asyncio.create_subprocess_exec(
            *unshare,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": os.environ.get("PATH", os.defpath)},
        )
        assert holder.stdout is not None
        assert holder.stderr is not None
        try:
            async with asyncio.timeout(_READY_SECONDS):
                said = await holder.stdout.readline()
        except TimeoutError:
            said = b""
        if said != b"ready\n":
            with contextlib.suppress(ProcessLookupError):
                holder.kill()
            error = (await holder.stderr.read()).decode(errors="replace").strip()
            raise PodStartError(f"the trial's view of the files cannot be made: {error}")
        return ["nsenter", f"--target={_only_child(holder.pid)}", "--mount", "--pid", "--root", "--wd"]

    async def _take_turn(self, room: Path) -> None:
        """Wait until no other trial runs. A second sandbox of one trial (a verifier's own) goes before the first."""
        trial = self.trial_paths.trial_dir
        if not _lent or _lent[-1][0] != trial:
            await self._lock().acquire()
            self._has_turn = True
        _lent.append((trial, room))
        await asyncio.to_thread(_lend, room)

    async def _give_back(self, room: Path) -> None:
        _lent[:] = [(trial, other) for trial, other in _lent if other != room]
        if self._has_turn:
            self._has_turn = False
            self._lock().release()
        elif _lent:
            await asyncio.to_thread(_lend, _lent[-1][1])

    @classmethod
    def _lock(cls) -> asyncio.Lock:
        loop = asyncio.get_running_loop()
        if cls._turn is None or cls._turn[0] is not loop:
            cls._turn = (loop, asyncio.Lock())
        return cls._turn[1]


def _only_child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def _lend(room: Path) -> None:
    """Let Harbor's folders be those of a room.

    Raises:
        PodStartError: The machine has other folders there.
    """
    SHARED_ROOM.unlink(missing_ok=True)
    SHARED_ROOM.symlink_to(room)
    for name in PLACES:
        place, wanted = Path(name), SHARED_ROOM / Path(name).name
        (room / place.name).mkdir(exist_ok=True)
        if place.is_symlink() and place.readlink() == wanted:
            continue
        try:
            place.symlink_to(wanted)
        except OSError as error:
            raise PodStartError(
                f"trials as processes need the link {place} -> {wanted}, which cannot be made ({error.strerror}); run"
                " as root, in the runner's image, or with environment.kind Pod"
            ) from error
