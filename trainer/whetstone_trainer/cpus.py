"""How many CPUs there are to compute on, and how much main memory."""

import math
import os
from pathlib import Path

CONTROL_GROUP = Path("/sys/fs/cgroup")
MEMORY_LIMITS = ("memory.max", "memory/memory.limit_in_bytes")
"""Where control groups of version 2 and of version 1 have it."""
UNLIMITED = 1 << 60
"""Version 1 writes a number near the largest one for no limit."""


def available_cpus() -> int:
    """Return the whole CPUs that this process may use: affinity, cut by the control group's quota."""
    count = len(os.sched_getaffinity(0))
    try:
        quota, period = (CONTROL_GROUP / "cpu.max").read_text().split()
    except (OSError, ValueError):
        return count
    return count if quota == "max" else max(1, min(count, math.ceil(int(quota) / int(period))))


def memory_limit() -> int | None:
    """Return the bytes of main memory that the control group may take; None where it has no limit."""
    for name in MEMORY_LIMITS:
        try:
            limit = int((CONTROL_GROUP / name).read_text())
        except (OSError, ValueError):
            continue
        return limit if limit < UNLIMITED else None
    return None
