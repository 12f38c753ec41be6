"""containerd's roots: the first node's is kept for the next cluster, the second node's begins as a copy of it.

Layers are unpacked into folders whose files never change, so the copy has hard links to them and takes hardly any
disk. Two daemons cannot share one root, and what one pulls later the other pulls too.
"""

import shutil
from pathlib import Path

from whetstone_dev import mounts
from whetstone_dev.commands import run
from whetstone_dev.places import cache_folder

_LINKED = ("io.containerd.content.v1.content/blobs", "io.containerd.snapshotter.v1.overlayfs/snapshots")
_COPIED = ("io.containerd.metadata.v1.bolt/meta.db", "io.containerd.snapshotter.v1.overlayfs/metadata.db")
"""Files that the daemon writes in place."""


def of(node: str) -> Path:
    """containerd's root of a node."""
    return cache_folder() / "containerd" / node


def complete(store: Path) -> bool:
    """Whether a daemon has used the root."""
    return all((store / name).exists() for name in (*_LINKED, *_COPIED))


def copy(source: Path, target: Path) -> None:
    """Make a root with the images of another, whose daemon must not run meanwhile.

    It also remembers the containers of the other; a fresh node forgets them at its first start.
    """
    partial = target.with_name(f"{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    for name in (*_LINKED, *_COPIED):
        (partial / name).parent.mkdir(parents=True, exist_ok=True)
        run(["cp", "--archive", *(["--link"] if name in _LINKED else []), source / name, partial / name])
    partial.replace(target)


def forget(node: str) -> None:
    """Delete a node's root."""
    store = of(node)
    for folder in (store, store.with_name(f"{store.name}.partial")):
        mounts.remove(folder)
        shutil.rmtree(folder, ignore_errors=True)
