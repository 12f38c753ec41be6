"""Named places at which tests kill the program, once, as `kill -9` would.

`WHETSTONE_FAILPOINT` names one of: `after-step:<step>`, `mid-checkpoint`, `after-checkpoint:<step>`,
`before-publish`, `before-publish-merged`. Of several processes, rank `WHETSTONE_FAILPOINT_RANK` is killed, or rank 0.
"""

import os
import signal
from pathlib import Path

VARIABLE = "WHETSTONE_FAILPOINT"
RANK_VARIABLE = "WHETSTONE_FAILPOINT_RANK"


def failpoint(name: str, workspace: Path) -> None:
    """Kill this process when the environment names this place and it has not been passed before.

    Args:
        name: The place.
        workspace: Folder that survives the process; it remembers that the place was hit.
    """
    if os.environ.get(VARIABLE) != name:
        return
    if os.environ.get("RANK", "0") != os.environ.get(RANK_VARIABLE, "0"):
        return
    marker = workspace / "failpoints" / name.replace(":", "-")
    if marker.exists():
        return
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.touch()
    os.kill(os.getpid(), signal.SIGKILL)
    # The first process of a container cannot kill itself; this ends it as suddenly, with the same exit code.
    os._exit(128 + signal.SIGKILL)
