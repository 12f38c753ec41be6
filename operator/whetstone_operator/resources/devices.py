"""Accelerators among a container's resources. Pure."""

from collections.abc import Mapping
from typing import Any


def is_device(name: str) -> bool:
    """Return whether a resource is a device: what Kubernetes knows itself (cpu, hugepages-2Mi) has no domain in its
    name, devices always have one."""
    return "/" in name


def asks_for_devices(resources: Mapping[str, Any] | None) -> bool:
    """Return whether a container's resources, as in its manifest, name a device."""
    asked = resources or {}
    return any(is_device(name) for kind in ("requests", "limits") for name in asked.get(kind) or {})
