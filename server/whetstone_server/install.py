"""Puts the guard into a volume that the stock engine image has on its PYTHONPATH."""

import shutil
from pathlib import Path

GUARD_SOURCE = Path(__file__).parent / "guard"


def install_guard(target: Path) -> None:
    """Copy the package `whetstone_guard` into a folder, so that `PYTHONPATH=<folder>` makes it importable.

    Args:
        target: Folder to make; an older copy in it is replaced.
    """
    target.mkdir(parents=True, exist_ok=True)
    # The target may be the root of a volume, whose mode and times are not ours to set, as a copy of the tree would.
    for package in GUARD_SOURCE.iterdir():
        if package.is_dir() and package.name != "__pycache__":
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(package, target / package.name, dirs_exist_ok=True, ignore=ignored)
