"""Where the development tooling keeps things: the checkout, the cache and the state folders."""

import os
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
"""The root of the repository that this package belongs to."""

BUILD = CHECKOUT / "build"
"""Everything generated inside the checkout; ignored by git and safe to delete."""


def cache_folder() -> Path:
    """Folder of what is expensive to get and never changes, keyed by component and version."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "whetstone"


def state_folder(cluster: str) -> Path:
    """Folder of all that one running cluster owns; `cluster down` removes it."""
    root = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return root / "whetstone" / cluster
