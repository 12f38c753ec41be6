"""Parts that all pods of ours share: restricted pod security, volumes, tokens."""

import re
from typing import Any

from whetstone_api.vocabulary import CLAIMS_ROOT, REPORT_AUDIENCE, REPORT_TOKEN_PATH

from whetstone_operator.settings import Settings

USER_ID = 65532
_TOKEN_LIFETIME_SECONDS = 3600
_ACCOUNT_TOKEN = "account-token"  # noqa: S105 - a volume's name
_ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
_ACCOUNT_SECONDS = 3607


def pod_security() -> dict[str, Any]:
    """Return the pod's security context under the `restricted` standard."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER_ID,
        "runAsGroup": USER_ID,
        "fsGroup": USER_ID,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security() -> dict[str, Any]:
    """Return a container's security context under the `restricted` standard, with a read-only root."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def claim_volume_name(claim: str) -> str:
    """Return a volume name for a claim; claim names may be longer and hold dots."""
    return ("claim-" + re.sub(r"[^a-z0-9-]", "-", claim))[:63].rstrip("-")


def claim_volume(claim: str) -> dict[str, Any]:
    """Return the volume of a claim."""
    return {"name": claim_volume_name(claim), "persistentVolumeClaim": {"claimName": claim}}


def claim_mount(claim: str, *, read_only: bool) -> dict[str, Any]:
    """Return the mount of a claim at its place under `CLAIMS_ROOT`."""
    mount: dict[str, Any] = {"name": claim_volume_name(claim), "mountPath": f"{CLAIMS_ROOT}/{claim}"}
    if read_only:
        mount["readOnly"] = True
    return mount


def empty_volume(name: str, *, memory: bool = False, size_limit: str | None = None) -> dict[str, Any]:
    """Return a scratch volume."""
    source: dict[str, Any] = {}
    if memory:
        source["medium"] = "Memory"
    if size_limit:
        source["sizeLimit"] = size_limit
    return {"name": name, "emptyDir": source}


def report_token_volume() -> dict[str, Any]:
    """Return the volume with the token that is good for reports to the operator and for nothing else."""
    token = {
        "path": REPORT_TOKEN_PATH.rsplit("/", 1)[1],
        "audience": REPORT_AUDIENCE,
        "expirationSeconds": _TOKEN_LIFETIME_SECONDS,
    }
    return {"name": "report-token", "projected": {"sources": [{"serviceAccountToken": token}]}}


def report_token_mount() -> dict[str, Any]:
    """Return the mount of `report_token_volume`."""
    return {"name": "report-token", "mountPath": REPORT_TOKEN_PATH.rsplit("/", 1)[0], "readOnly": True}


def account_token_volume() -> dict[str, Any]:
    """Return what the API server would mount into every container; ours may be in one alone."""
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    authority = {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    sources = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": _ACCOUNT_SECONDS}},
        {"configMap": authority},
        {"downwardAPI": {"items": [namespace]}},
    ]
    return {"name": _ACCOUNT_TOKEN, "projected": {"sources": sources}}


def account_token_mount() -> dict[str, Any]:
    """Return the mount of `account_token_volume`."""
    return {"name": _ACCOUNT_TOKEN, "mountPath": _ACCOUNT_FOLDER, "readOnly": True}


def image_fields(settings: Settings, image: str) -> dict[str, Any]:
    """Return a container's image and pull policy."""
    fields: dict[str, Any] = {"image": image}
    if settings.image_pull_policy:
        fields["imagePullPolicy"] = settings.image_pull_policy
    return fields


def pull_secrets(settings: Settings) -> dict[str, Any]:
    """Return the pod's pull secrets, as a fragment of its spec."""
    names = settings.image_pull_secrets
    return {"imagePullSecrets": [{"name": name} for name in names]} if names else {}
