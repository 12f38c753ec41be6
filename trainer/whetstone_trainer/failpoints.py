"""Named places at which tests kill the program, once, as `kill -9` would, or let it hang.

`WHETSTONE_FAILPOINT` names one of: `while-rendering`, `after-step:<step>`, `mid-checkpoint`, `after-checkpoint:<step>`,
`before-publish`, `before-publish-merged`. With `hang:` before its name, the program hangs at that place instead, with
`fill:` it takes memory until the kernel kills it. Of several processes, it is rank `WHETSTONE_FAILPOINT_RANK`, or
rank 0.
"""

import os
import signal
import threading
from pathlib import Path

from whetstone_trainer.cpus import memory_limit

VARIABLE = "WHETSTONE_FAILPOINT"
RANK_VARIABLE = "WHETSTONE_FAILPOINT_RANK"
FILL_BYTES = 64 << 20


def failpoint(name: str, workspace: Path) -> None:
    """Kill this process, or let it hang, when the environment names this place and it has not been passed before.

    Args:
        name: The place.
        workspace: Folder that survives the process; it remembers that the place was hit.
    """
    asked = os.environ.get(VARIABLE)
    if asked not in (name, f"hang:{name}", f"fill:{name}"):
        return
    if os.environ.get("RANK", "0") != os.environ.get(RANK_VARIABLE, "0"):
        return
    marker = workspace / "failpoints" / name.replace(":", "-")
    if marker.exists():
        return
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.touch()
    if asked.startswith("hang:"):
        threading.Event().wait()
    if asked.startswith("fill:"):
        _fill()
    os.kill(os.getpid(), signal.SIGKILL)
    # The first process of a container cannot kill itself; this ends it as suddenly, with the same exit code.
    os._exit(128 + signal.SIGKILL)


def _fill() -> None:
    """Take more memory than the container may."""
    limit = memory_limit()
    if limit is None:
        raise RuntimeError(f"{VARIABLE} asks for more memory than the container may take, and it has no limit")
    taken = [b"x" * FILL_BYTES for _ in range(limit // FILL_BYTES + 1)]
    raise RuntimeError(f"{len(taken) * FILL_BYTES} bytes were taken, more than the limit of {limit}")
