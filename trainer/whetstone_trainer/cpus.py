"""How many CPUs there are to compute on."""

import math
import os
from pathlib import Path


def available_cpus() -> int:
    """Return the whole CPUs that this process may use: affinity, cut by the control group's quota."""
    count = len(os.sched_getaffinity(0))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return count
    return count if quota == "max" else max(1, min(count, math.ceil(int(quota) / int(period))))
