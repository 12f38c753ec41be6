"""The Secret by which a server's pods tell callers apart: the operator by its token, clients by their keys. Pure.

Of the users' keys it holds hashes. It is mounted always, so that a key or a limit that comes or goes never starts a
rollout; a new one reaches running pods when the kubelet next renews the volume.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

from whetstone_api.access import ACCESS_FILE, API_KEY_VARIABLE, AccessKey, AccessPolicy, ApiKeySpec, SecretKeyRef
from whetstone_api.model_endpoint import ModelEndpoint
from whetstone_api.modelserver import ModelServer

from whetstone_operator.resources.metadata import child_metadata

COMPONENT = "engine"
FOLDER = "/etc/whetstone/access"
TOKEN_KEY = "token"  # noqa: S105 - a key's name, not a secret
RUNNER_KEY = "runner-key"
"""Key of the Secret: what runners of BenchmarkRuns send as their API key."""
RUNNER = "whetstone-benchmark"
VOLUME = "access"


def access_name(server: str) -> str:
    """Return the name of the Secret of a server of that name."""
    return f"{server}-access"


def runner_key(token: str) -> str:
    """Return the API key of benchmark runners. It follows from the operator's token, so it needs no keeping."""
    return hmac.digest(token.encode(), b"api key of benchmark runners", "sha256").hex()


def access_policy(server: ModelServer, keys: Mapping[str, str], *, token: str) -> AccessPolicy:
    """Return what the guard enforces.

    Args:
        server: The server.
        keys: Each key that was found, by its name in the spec.
        token: The operator's token for this server.
    """
    specs = server.spec.api_keys or []
    limits = server.spec.limits
    found = [_known(spec, keys[spec.name]) for spec in specs if spec.name in keys]
    runner = AccessKey(name=RUNNER, sha256=_hash(runner_key(token)))
    return AccessPolicy(
        keys_required=bool(specs),
        keys=[*found, runner] if specs else [],
        request_bytes=limits.request_bytes if limits else None,
        concurrent_requests=limits.concurrent_requests if limits else None,
    )


def build_access(server: ModelServer, policy: AccessPolicy, *, token: str) -> dict[str, Any]:
    """Return the Secret."""
    values = {TOKEN_KEY: token, ACCESS_FILE: policy.to_json(), RUNNER_KEY: runner_key(token)}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": child_metadata(server, name=access_name(server.metadata.name), component=COMPONENT),
        "type": "Opaque",
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in values.items()},
    }


def read_value(secret: Mapping[str, Any], key: str) -> str | None:
    """Return what a Secret holds under a key; None unless it can be sent in a header."""
    try:
        value = base64.b64decode((secret.get("data") or {}).get(key) or "").decode("ascii").strip()
    except (binascii.Error, UnicodeDecodeError):
        return None
    return value if value and value.isprintable() and " " not in value else None


def access_volume(server: ModelServer) -> dict[str, Any]:
    """Return the engine pod's volume: all but the runners' key, which is not the engine's matter."""
    items = [{"key": key, "path": key} for key in (TOKEN_KEY, ACCESS_FILE)]
    return {"name": VOLUME, "secret": {"secretName": access_name(server.metadata.name), "items": items}}


def access_mount() -> dict[str, Any]:
    """Return the mount of the volume in the containers of engine and sidecar."""
    return {"name": VOLUME, "mountPath": FOLDER, "readOnly": True}


def runner_environment(server: str, *, variable: str = API_KEY_VARIABLE) -> dict[str, Any]:
    """Return the variable from which a runner takes its API key; unset for a server without the Secret."""
    reference = SecretKeyRef(name=access_name(server), key=RUNNER_KEY)
    return secret_variable(variable, reference, optional=True)


def endpoint_variable(endpoint: ModelEndpoint, variable: str, *, optional: bool = False) -> dict[str, Any] | None:
    """Return the variable with the key of a model's API; None for one that asks for none.

    Args:
        endpoint: The model.
        variable: Name of the variable.
        optional: Whether the pod starts without the Secret of an API that is no ModelServer's.
    """
    if endpoint.model_server_ref is not None:
        return runner_environment(endpoint.model_server_ref.name, variable=variable)
    if endpoint.secret_ref is None:
        return None
    return secret_variable(variable, endpoint.secret_ref, optional=optional)


def secret_variable(name: str, reference: SecretKeyRef, *, optional: bool = False) -> dict[str, Any]:
    """Return a variable that holds a key of a Secret."""
    told = reference.to_wire() | ({"optional": True} if optional else {})
    return {"name": name, "valueFrom": {"secretKeyRef": told}}


def _known(spec: ApiKeySpec, key: str) -> AccessKey:
    return AccessKey(name=spec.name, sha256=_hash(key), models=spec.models)


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
