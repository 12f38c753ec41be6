"""Long-running processes that outlive this program: started, recorded, found again and stopped.

A record holds the process id and its start time, so that a number that the system gave to somebody else after a
crash or a reboot is never taken for ours.
"""

import hashlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whetstone_dev.commands import DevError


def start_time(pid: int) -> str | None:
    """The boot's identity and the process's start time in clock ticks; None when it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in {"Z", "X"} else f"{boot}:{fields[19]}"


@dataclass(frozen=True)
class Processes:
    """The recorded processes of one cluster: a folder with a record and a log each."""

    folder: Path

    def log(self, name: str) -> Path:
        """The file that the named process writes its output to."""
        return self.folder / f"{name}.log"

    def start(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        namespace: str | None = None,
        env: Mapping[str, str] | None = None,
        config: Sequence[Path] = (),
    ) -> None:
        """Start a process in its own session, in the network namespace if one is named, unless it runs already.

        A running one that read other contents of the files `config` at its start is stopped and started again.
        """
        read = _digest(config)
        if self.alive(name):
            if self._record(name).get("config") == read:
                return
            self.stop(name, grace=10)
        self.folder.mkdir(parents=True, exist_ok=True)
        arguments = [str(part) for part in command]
        if namespace:
            # `ip netns exec` would remount /sys and hide the cgroup v1 hierarchies from the kubelet.
            arguments = ["nsenter", f"--net=/run/netns/{namespace}", *arguments]
        with self.log(name).open("a") as log:
            process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd="/",
                env={**os.environ, **(env or {})},
            )
        record = {"pid": process.pid, "start": start_time(process.pid), "command": arguments, "config": read}
        temporary = self.folder / f"{name}.new"
        temporary.write_text(json.dumps(record))
        temporary.replace(self.folder / f"{name}.json")

    def pid(self, name: str) -> int | None:
        """The process id of the named process, or None when it does not run."""
        record = self._record(name)
        if record.get("start") is None or start_time(record["pid"]) != record["start"]:
            return None
        return int(record["pid"])

    def _record(self, name: str) -> dict[str, Any]:
        """What was written down at the start; empty where nothing was, or only half of it."""
        try:
            record: dict[str, Any] = json.loads((self.folder / f"{name}.json").read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return record

    def alive(self, name: str) -> bool:
        """Whether the named process runs."""
        return self.pid(name) is not None

    def names(self) -> list[str]:
        """Every process with a record, running or not."""
        return sorted(path.stem for path in self.folder.glob("*.json"))

    def stop(self, name: str, *, grace: float) -> None:
        """Ask the process to end, force it after `grace` seconds, and drop its record."""
        pid = self.pid(name)
        if pid is not None:
            end([pid], grace=grace)
        (self.folder / f"{name}.json").unlink(missing_ok=True)

    def tail(self, name: str, *, lines: int = 8) -> str:
        """The last lines that the process wrote, for an error message."""
        try:
            return "\n    ".join(self.log(name).read_text(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return "(no log)"


def _digest(files: Sequence[Path]) -> str | None:
    """Digest of the files' contents; None without files."""
    if not files:
        return None
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()


def end(pids: Iterable[int], *, grace: float) -> None:
    """Send SIGTERM to all, wait up to `grace` seconds, send SIGKILL to what is left and wait for it too.

    Raises:
        DevError: a process survives SIGKILL for 10 seconds.
    """
    known = {pid: begun for pid in pids if (begun := start_time(pid)) is not None}
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 10.0)):
        for pid in known:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
        deadline = time.monotonic() + patience
        while known and time.monotonic() < deadline:
            _reap(known)
            known = {pid: begun for pid, begun in known.items() if start_time(pid) == begun}
            if known:
                time.sleep(0.05)
        if not known:
            return
    raise DevError(f"processes {sorted(known)} do not end, not even when killed; look at `ps -o pid,stat,wchan,args`")


def _reap(pids: Iterable[int]) -> None:
    for pid in pids:
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            continue
