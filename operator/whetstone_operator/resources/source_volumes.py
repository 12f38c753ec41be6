"""Volumes of a server's pod for places outside the cluster. Pure."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whetstone_api.modelserver import ModelServer
from whetstone_api.vocabulary import MODELS_ROOT, SECRETS_ROOT
from whetstone_artifacts.sources.fetch import model_folder

from whetstone_operator.resources.egress import ca_mounts, egress_variables
from whetstone_operator.resources.pods import (
    claim_mount,
    claim_volume_name,
    container_security,
    empty_volume,
    image_fields,
)
from whetstone_operator.settings import Settings

FETCH_CONTAINER = "fetch-model"
"""Name of the init container that fetches the base model."""
MODEL_DIGEST_VARIABLE = "WHETSTONE_MODEL_DIGEST"
IMAGE_VOLUME = "model-image"
_MODELS = "models"
_TMP = "/tmp"  # noqa: S108 - an emptyDir of the pod


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


def secret_volume(name: str) -> dict[str, Any]:
    """Return the volume of one Secret that must exist."""
    return {"name": _volume_name(name), "secret": {"secretName": name}}


def secret_mount(name: str) -> dict[str, Any]:
    """Return the mount of one Secret."""
    return {"name": _volume_name(name), "mountPath": f"{SECRETS_ROOT}/{name}", "readOnly": True}


def model_path(server: ModelServer) -> str:
    """Return where containers find the base model."""
    source = server.spec.model.place
    if source.in_claim is not None:
        return source.in_claim.mount_path
    image = server.spec.model.image_volume
    if image is not None:
        return f"{MODELS_ROOT}/{image.sub_path}" if image.sub_path else MODELS_ROOT
    return str(model_folder(Path(MODELS_ROOT), source.uri, source.digest))


def model_variables(server: ModelServer) -> list[dict[str, str]]:
    """Return the variable by which an engine starts again when the content of a model in a claim becomes another."""
    place = server.spec.model.place
    if place.in_claim is None or place.digest is None:
        return []
    return [{"name": MODEL_DIGEST_VARIABLE, "value": place.digest}]


def model_volumes(server: ModelServer) -> list[dict[str, Any]]:
    """Return the volumes for fetching the model, but for those of claims."""
    model = server.spec.model
    if model.place.in_claim is not None:
        return []
    if model.image_volume is not None:
        reference = model.place.uri.removeprefix("oci://")
        return [{"name": IMAGE_VOLUME, "image": {"reference": reference, "pullPolicy": "IfNotPresent"}}]
    volumes = [] if model.cache else [empty_volume(_MODELS)]
    secret = model.place.secret_ref
    if secret is not None and secret.name not in _store_names(server):
        volumes.append(secret_volume(secret.name))
    return volumes


def has_model_image(workload: Mapping[str, Any] | None) -> bool:
    """Return whether the pods of a stored workload have the model as an image; False where there is none yet."""
    return workload is not None and _model_image(workload["spec"]["template"]["spec"]) is not None


def lost_model_image(asked: Mapping[str, Any], stored: Mapping[str, Any]) -> bool:
    """Return whether a pod lost its model's image on the way into the API server.

    Args:
        asked: The pod's spec as it was sent.
        stored: The same as the API server would store it.
    """
    return _model_image(asked) is not None and _model_image(stored) is None


def model_mount(server: ModelServer, *, read_only: bool) -> dict[str, Any]:
    """Return the mount of the base model's volume."""
    model = server.spec.model
    if model.place.in_claim is not None:
        return claim_mount(model.place.in_claim.claim, read_only=read_only)
    if model.image_volume is not None:
        return {"name": IMAGE_VOLUME, "mountPath": MODELS_ROOT, "readOnly": True}
    name = claim_volume_name(model.cache.claim_name) if model.cache else _MODELS
    return {"name": name, "mountPath": MODELS_ROOT, **({"readOnly": True} if read_only else {})}


def fetch_containers(server: ModelServer, settings: Settings) -> list[dict[str, Any]]:
    """Return the init container that fetches the base model; none where it lies in a claim or comes as an image."""
    source = server.spec.model.place
    if source.in_claim is not None or server.spec.model.image_volume is not None:
        return []
    arguments = ["fetch-model", f"--uri={source.uri}", f"--root={MODELS_ROOT}"]
    mounts = [
        model_mount(server, read_only=False),
        {"name": "sidecar-tmp", "mountPath": _TMP},
        *ca_mounts(settings.egress),
    ]
    if source.digest:
        arguments.append(f"--digest={source.digest}")
    if source.secret_ref:
        arguments.append(f"--secret={SECRETS_ROOT}/{source.secret_ref.name}")
        mounts.append(secret_mount(source.secret_ref.name))
    return [
        {
            "name": FETCH_CONTAINER,
            **image_fields(settings, settings.server_image),
            "args": arguments,
            "env": [{"name": "HOME", "value": _TMP}, *egress_variables(settings.egress)],
            "securityContext": container_security(),
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
            "volumeMounts": mounts,
        }
    ]


def _model_image(pod: Mapping[str, Any]) -> Any:
    volumes = {volume["name"]: volume for volume in pod.get("volumes") or []}
    return volumes.get(IMAGE_VOLUME, {}).get("image")


def _volume_name(name: str) -> str:
    return ("secret-" + re.sub(r"[^a-z0-9-]", "-", name))[:63].rstrip("-")


def _store_names(server: ModelServer) -> list[str]:
    return sorted({store.secret_ref.name for store in server.spec.adapter_stores or [] if store.secret_ref})
