"""What makes the engines of a server what they are, as a benchmark records it before and compares it after. Pure."""

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from whetstone_api.benchmark_target import EngineIdentity
from whetstone_api.digests import canonical_digest
from whetstone_api.vocabulary import Annotation

from whetstone_operator.controllers.engine_failure import ENGINE
from whetstone_operator.runtime.clock import from_rfc3339


def engine_identity(deployment: Mapping[str, Any]) -> EngineIdentity:
    """Return the identity of the engines that a Deployment makes."""
    template = deployment["spec"]["template"]
    engine = next(one for one in template["spec"]["containers"] if one["name"] == ENGINE)
    chat = ((template.get("metadata") or {}).get("annotations") or {}).get(Annotation.CHAT_TEMPLATE)
    settings = {
        "command": engine.get("command") or [],
        "arguments": engine.get("args") or [],
        "environment": engine.get("env") or [],
    }
    return EngineIdentity(
        image=engine["image"],
        settings=canonical_digest(settings),
        chat_template=None if chat is None else f"sha256:{hashlib.sha256(chat.encode()).hexdigest()}",
    )


def identity_change(before: EngineIdentity, deployment: Mapping[str, Any], *, ended_at: str | None) -> str | None:
    """Return what has become other engines while a run was at work; None where nothing has.

    Args:
        before: The identity at the start.
        deployment: The server's Deployment now.
        ended_at: When the run's Job ended, RFC 3339: what has changed since then is none of its business.
    """
    now = engine_identity(deployment)
    # Both times are whole seconds; what waited for the end may follow it within the same one.
    if now == before or (ended_at is not None and (at := _changed_at(deployment)) and at >= from_rfc3339(ended_at)):
        return None
    changed = [
        f"{name} {old} -> {new}"
        for name, old, new in (
            ("image", before.image, now.image),
            ("settings", before.settings, now.settings),
            ("chat template", before.chat_template, now.chat_template),
        )
        if old != new
    ]
    return f"the engines changed during the run: {'; '.join(changed)}"


def _changed_at(deployment: Mapping[str, Any]) -> datetime | None:
    """Return when the Deployment's spec was last written."""
    times = [
        from_rfc3339(entry["time"])
        for entry in deployment["metadata"].get("managedFields") or []
        if not entry.get("subresource") and "f:spec" in (entry.get("fieldsV1") or {}) and entry.get("time")
    ]
    return max(times, default=None)
