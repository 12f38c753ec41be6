"""The control groups of a cluster's pods, on cgroup v1 and v2: made before the kubelet, emptied and removed after."""

import errno
import time
from collections.abc import Iterator
from pathlib import Path

from whetstone_dev.commands import DevError
from whetstone_dev.processes import end

_ROOT = Path("/sys/fs/cgroup")


def unified() -> bool:
    """Whether the host uses cgroup v2."""
    return (_ROOT / "cgroup.controllers").exists()


def _hierarchies() -> list[Path]:
    if unified():
        return [_ROOT]
    return [path for path in sorted(_ROOT.iterdir()) if path.is_dir() and (path / "cgroup.procs").exists()]


def create(name: str) -> None:
    """Make the group that the kubelet puts all pods under, in every hierarchy."""
    for hierarchy in _hierarchies():
        group = hierarchy / name
        group.mkdir(exist_ok=True)
        for setting in ("cpuset.cpus", "cpuset.mems"):
            # A new v1 cpuset is empty, and no process can join it before it is given processors and memory.
            if not unified() and (group / setting).exists():
                (group / setting).write_text((hierarchy / setting).read_text())
    if unified():
        controllers = (_ROOT / "cgroup.controllers").read_text().split()
        wanted = " ".join(
            f"+{one}" for one in controllers if one in {"cpu", "cpuset", "io", "memory", "pids", "hugetlb"}
        )
        for group in (_ROOT, _ROOT / name):
            (group / "cgroup.subtree_control").write_text(wanted)


def _groups(name: str) -> Iterator[Path]:
    """Every group below and including `name`, deepest first."""
    for hierarchy in _hierarchies():
        top = hierarchy / name
        if top.exists():
            inner = [path for path in top.rglob("*") if path.is_dir()]
            yield from sorted(inner, key=lambda path: len(path.parts), reverse=True)
            yield top


def members(name: str) -> set[int]:
    """The ids of all processes in the group and below."""
    found: set[int] = set()
    for group in _groups(name):
        try:
            found.update(int(line) for line in (group / "cgroup.procs").read_text().split())
        except FileNotFoundError:
            continue
    return found - {0}


def delete(name: str, *, grace: float) -> None:
    """End every process in the group and remove it from every hierarchy.

    Shims remove the groups of their containers at the same time, and a group is busy for a moment after its last
    process ended.

    Raises:
        DevError: a group cannot be removed for 10 seconds.
    """
    deadline = time.monotonic() + 10 + grace
    while present(name):
        end(members(name), grace=grace)
        busy = [group for group in list(_groups(name)) if not _removed(group)]
        if busy and time.monotonic() > deadline:
            raise DevError(f"control group {busy[0]} cannot be removed; look at its cgroup.procs")
        if busy:
            time.sleep(0.05)


def _removed(group: Path) -> bool:
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno in {errno.EBUSY, errno.ENOTEMPTY}:
            return False
        raise
    return True


def present(name: str) -> bool:
    """Whether any hierarchy still has the group."""
    return any((hierarchy / name).exists() for hierarchy in _hierarchies())
