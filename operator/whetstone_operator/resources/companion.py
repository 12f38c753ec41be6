"""Containers beside a Job's own, and what comes with them."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Companion:
    """A container that starts before a Job's own, and what comes with it.

    Args:
        container: A native sidecar, or a container that ends before the Job's own starts.
        mounts: Further mounts of the Job's own container.
        volumes: Further volumes of the pod.
    """

    container: dict[str, Any]
    mounts: tuple[dict[str, Any], ...]
    volumes: tuple[dict[str, Any], ...]
