"""The machine on which something is measured. Needs nothing but Python: scripts in the trainer's image use it too."""

import platform
from pathlib import Path


def processor() -> str:
    """Return what the processor calls itself."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
