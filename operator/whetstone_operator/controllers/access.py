"""API keys and limits of a ModelServer: read the users' Secrets, tell the guard."""

import base64
import binascii

from whetstone_api.access import ApiKeySpec
from whetstone_api.modelserver import ModelServer
from whetstone_api.vocabulary import Reason

from whetstone_operator.kinds import SECRET
from whetstone_operator.resources.access import access_policy, build_access
from whetstone_operator.runtime.outcome import Waiting
from whetstone_operator.runtime.reconcile import Work

POLL_SECONDS = 30.0
"""Secrets are not watched: a changed key is found after this time at the latest."""
MISSING_POLL_SECONDS = 5.0


async def apply_access(work: Work[ModelServer], *, token: str) -> str | None:
    """Write the Secret that the guard reads, with each key that is there.

    A key that is missing lets nobody in, and keeps no other key out.

    Returns:
        What is wrong with the first key that is missing; None when none is.
    """
    server = work.resource
    keys: dict[str, str] = {}
    problems: list[str] = []
    for spec in server.spec.api_keys or []:
        key, problem = await _read(work, spec)
        if problem:
            problems.append(problem)
        else:
            keys[spec.name] = key
    wanted = build_access(server, access_policy(server, keys, token=token), token=token)
    await work.context.kube.apply(wanted, look=not work.new)
    if server.spec.api_keys:
        work.look_again(POLL_SECONDS)
    return problems[0] if problems else None


def require_access(problem: str | None) -> None:
    """Hold a server back from Ready while one of its keys is missing.

    Raises:
        Waiting: There is a problem.
    """
    if problem is not None:
        raise Waiting(Reason.SECRET_NOT_FOUND, problem, MISSING_POLL_SECONDS)


async def _read(work: Work[ModelServer], spec: ApiKeySpec) -> tuple[str, str]:
    """Return the key, or what is wrong with it."""
    name, key = spec.secret_ref.name, spec.secret_ref.key
    field = f"spec.apiKeys[{spec.name}].secretRef"
    secret = await work.context.kube.get(SECRET, work.namespace, name)
    if secret is None:
        return "", f"{field}.name: Secret {name} does not exist in namespace {work.namespace}; create it"
    data: dict[str, str] = secret.get("data") or {}
    if key not in data:
        keys = ", ".join(sorted(data)) or "none"
        return "", f"{field}.key: Secret {name} has no key {key} (its keys: {keys}); add it"
    try:
        value = base64.b64decode(data[key]).decode("ascii").strip()
    except (binascii.Error, UnicodeDecodeError):
        value = ""
    if not value or not value.isprintable() or " " in value:
        return "", f"{field}.key: key {key} of Secret {name} must be printable ASCII without spaces; replace it"
    return value, ""
