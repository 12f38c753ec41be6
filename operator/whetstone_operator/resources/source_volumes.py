"""Volumes of a server's pod for places outside the cluster. Pure."""

import re
from typing import Any

from whetstone_api.modelserver import ModelServer
from whetstone_api.vocabulary import SECRETS_ROOT


def store_secrets(server: ModelServer) -> list[dict[str, Any]]:
    """Return the volumes of the Secrets that `spec.adapterStores` names.

    They are optional: a Secret that is missing must stop its adapters only, not the server.
    """
    return [
        {"name": _volume_name(name), "secret": {"secretName": name, "optional": True}} for name in _store_names(server)
    ]


def store_secret_mounts(server: ModelServer) -> list[dict[str, Any]]:
    """Return the mounts of `store_secrets`, for the sidecar."""
    return [secret_mount(name) for name in _store_names(server)]


def secret_mount(name: str) -> dict[str, Any]:
    """Return the mount of one Secret."""
    return {"name": _volume_name(name), "mountPath": f"{SECRETS_ROOT}/{name}", "readOnly": True}


def _volume_name(name: str) -> str:
    return ("secret-" + re.sub(r"[^a-z0-9-]", "-", name))[:63].rstrip("-")


def _store_names(server: ModelServer) -> list[str]:
    return sorted({store.secret_ref.name for store in server.spec.adapter_stores or [] if store.secret_ref})
