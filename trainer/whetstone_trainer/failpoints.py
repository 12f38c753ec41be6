"""Named places at which tests kill the program, once, as `kill -9` would, or let it hang.

`WHETSTONE_FAILPOINT` names one of: `while-rendering`, `after-step:<step>`, `mid-checkpoint`, `after-checkpoint:<step>`,
`before-publish`, `before-publish-merged`. With `hang:` before its name, the program hangs at that place instead. Of
several processes, it is rank `WHETSTONE_FAILPOINT_RANK`, or rank 0.
"""

import os
import signal
import threading
from pathlib import Path

VARIABLE = "WHETSTONE_FAILPOINT"
RANK_VARIABLE = "WHETSTONE_FAILPOINT_RANK"


def failpoint(name: str, workspace: Path) -> None:
    """Kill this process, or let it hang, when the environment names this place and it has not been passed before.

    Args:
        name: The place.
        workspace: Folder that survives the process; it remembers that the place was hit.
    """
    hangs = os.environ.get(VARIABLE) == f"hang:{name}"
    if os.environ.get(VARIABLE) != name and not hangs:
        return
    if os.environ.get("RANK", "0") != os.environ.get(RANK_VARIABLE, "0"):
        return
    marker = workspace / "failpoints" / name.replace(":", "-")
    if marker.exists():
        return
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.touch()
    if hangs:
        threading.Event().wait()
    os.kill(os.getpid(), signal.SIGKILL)
    # The first process of a container cannot kill itself; this ends it as suddenly, with the same exit code.
    os._exit(128 + signal.SIGKILL)
