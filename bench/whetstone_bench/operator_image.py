"""The operator as its image has it: with the image's own Python, which is compiled with profile and link optimization.

The Python of a development machine may be built without, and be a quarter slower at the same work.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from whetstone_dev.commands import run
from whetstone_dev.images import build_local

PYTHON: Final = "/opt/venv/bin/python3"
_ENTER: Final = f"""
root=$1 shared=$2; shift 3
mkdir -p "$root$shared"
mount --bind "$shared" "$root$shared"
mount -t proc proc "$root/proc"
exec env -u PYTHONPATH chroot "$root" {PYTHON} "$@"
"""
"""Its third argument, the Python of the checkout, is left out. All of it is one process, whose number stays."""


@contextmanager
def operator_of_image(shared: Path) -> Iterator[list[str]]:
    """Give the launcher (`Stage.operator`) that runs the operator in its image's file system.

    The image is built of this checkout first; its mounts are in a namespace that ends with the process.

    Args:
        shared: Folder of the credentials, which the operator finds at the same place.
    """
    with _mounted() as root:
        yield ["unshare", "--mount", "sh", "-ec", _ENTER, "sh", root, str(shared)]


def python_of_image() -> str:
    """Return the version of the image's Python."""
    with _mounted() as root:
        return f"{run(['chroot', root, PYTHON, '--version']).split()[1]} of the operator's image"


@contextmanager
def _mounted() -> Iterator[str]:
    container = run(["buildah", "from", build_local("operator")]).strip()
    try:
        yield run(["buildah", "mount", container]).strip()
    finally:
        run(["buildah", "rm", container])
