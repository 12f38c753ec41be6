"""Who may call a ModelServer's pods: its operator, and clients by API keys and limits; told to the guard."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from whetstone_api.access import ApiKeySpec
from whetstone_api.modelserver import ModelServer
from whetstone_api.vocabulary import Reason

from whetstone_operator.kinds import SECRET
from whetstone_operator.resources.access import TOKEN_KEY, access_name, access_policy, build_access, read_value
from whetstone_operator.runtime.outcome import Waiting
from whetstone_operator.runtime.read_ahead import ReadAhead
from whetstone_operator.runtime.reconcile import Work
from whetstone_operator.runtime.unchanged import stamp

POLL_SECONDS = 30.0
"""Secrets are not watched: a changed key is found after this time at the latest."""
MISSING_POLL_SECONDS = 5.0
TOKEN_BYTES = 32


@dataclass(frozen=True, kw_only=True)
class Access:
    """What came of a server's Secret.

    Attributes:
        token: What the operator sends to the server's pods.
        problem: What is wrong with the first API key that is missing; None when none is.
    """

    token: str
    problem: str | None


async def apply_access(work: Work[ModelServer], kube: ReadAhead) -> Access:
    """Write the Secret that guard and sidecar read, with each key that is there.

    A key that is missing lets nobody in, and keeps no other key out. The token is made once: another one would lock the
    operator out of running pods until their kubelets renew the volume.

    Args:
        work: The reconcile of the server.
        kube: With what was read ahead of it.

    Raises:
        KubeError: As `Kube`.
    """
    server = work.resource
    keys, problems = await _keys(work, kube)
    stored = await kube.get(SECRET, work.namespace, access_name(work.name))

    def wanted(token: str) -> dict[str, Any]:
        return build_access(server, access_policy(server, keys, token=token), token=token)

    if stored is None:
        stored = await kube.create(stamp(wanted(_new_token())))
    token = read_value(stored, TOKEN_KEY) or await _earlier_token(work, kube) or _new_token()
    await kube.apply(wanted(token), stored=stored)
    if server.spec.api_keys:
        work.look_again(POLL_SECONDS)
    return Access(token=token, problem=problems[0] if problems else None)


def require_access(problem: str | None) -> None:
    """Hold a server back from Ready while one of its keys is missing.

    Raises:
        Waiting: There is a problem.
    """
    if problem is not None:
        raise Waiting(Reason.SECRET_NOT_FOUND, problem, MISSING_POLL_SECONDS)


def key_secrets(server: ModelServer) -> list[str]:
    """Return the names of the Secrets with the users' keys."""
    return list(dict.fromkeys(spec.secret_ref.name for spec in server.spec.api_keys or []))


async def _keys(work: Work[ModelServer], kube: ReadAhead) -> tuple[dict[str, str], list[str]]:
    """Return each key that is there, by its name in the spec, and what is wrong with the others."""
    found = {name: await kube.get(SECRET, work.namespace, name) for name in key_secrets(work.resource)}
    keys: dict[str, str] = {}
    problems: list[str] = []
    for spec in work.resource.spec.api_keys or []:
        secret = found[spec.secret_ref.name]
        value = read_value(secret or {}, spec.secret_ref.key)
        if value is None:
            problems.append(_problem(spec, secret, namespace=work.namespace))
        else:
            keys[spec.name] = value
    return keys, problems


def _problem(spec: ApiKeySpec, secret: Mapping[str, Any] | None, *, namespace: str) -> str:
    name, key = spec.secret_ref.name, spec.secret_ref.key
    field = f"spec.apiKeys[{spec.name}].secretRef"
    if secret is None:
        return f"{field}.name: Secret {name} does not exist in namespace {namespace}; create it"
    there = secret.get("data") or {}
    if key not in there:
        keys = ", ".join(sorted(there)) or "none"
        return f"{field}.key: Secret {name} has no key {key} (its keys: {keys}); add it"
    return f"{field}.key: key {key} of Secret {name} must be printable ASCII without spaces; replace it"


async def _earlier_token(work: Work[ModelServer], kube: ReadAhead) -> str | None:
    """Return the token that an operator before 0.1.0 made: it kept it in a Secret of its own."""
    stored = await kube.get(SECRET, work.namespace, f"{work.name}-{TOKEN_KEY}")
    return None if stored is None else read_value(stored, TOKEN_KEY)


def _new_token() -> str:
    return secrets.token_hex(TOKEN_BYTES)
