"""What tests do to the node as root: restart it, or kill a container's process as a crash or the kernel would."""

import os
import signal
from pathlib import Path
from typing import Any

from whetstone_dev.cluster import Cluster


def main_process(pod: dict[str, Any], container: str) -> int:
    """Return the id on this machine of a container's first process.

    Raises:
        AssertionError: The container does not run on this machine.
    """
    return processes(pod, container)[0]


def processes(pod: dict[str, Any], container: str) -> list[int]:
    """Return the ids on this machine of a container's processes, in the order of their start.

    Raises:
        AssertionError: The container does not run on this machine.
    """
    statuses = pod["status"].get("containerStatuses") or []
    identity = next((item.get("containerID") or "" for item in statuses if item["name"] == container), "")
    wanted = identity.rpartition("//")[2]
    assert wanted, f"container {container} of pod {pod['metadata']['name']} does not run"
    found = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cgroup") if wanted in _read(path)]
    assert found, f"no process of container {container} ({wanted[:12]}) on this machine"
    return sorted(found, key=_started)


def kill(pod: dict[str, Any], container: str) -> None:
    """Kill a container's first process, and with it the container, without any warning."""
    os.kill(main_process(pod, container), signal.SIGKILL)


def restart() -> None:
    """Let the node go down with all that runs on it, and come back."""
    cluster = Cluster()
    cluster.node().stop()
    cluster.up()


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _started(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
