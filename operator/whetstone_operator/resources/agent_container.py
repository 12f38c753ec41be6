"""The container of a user's agent in a runner's pod. Pure.

Code that users bring must never hold a Kubernetes token. So it gets a container of its own, which mounts the code
and the socket's folder and nothing else: no service-account token, no report token, no key, no claim of the run. The
runner's own container gets the account's token by a volume that it alone mounts.
"""

from typing import Any

from whetstone_api.benchmark_agent import AgentSpec
from whetstone_api.vocabulary import AGENT_ROOT, AGENT_SOCKET

from whetstone_operator.resources.companion import Companion
from whetstone_operator.resources.fetching import AGENT_VOLUME
from whetstone_operator.resources.pods import (
    claim_volume_name,
    container_security,
    empty_volume,
    image_fields,
)
from whetstone_operator.settings import Settings

CONTAINER = "agent"
_LINK = "agent-link"
_HOME = "agent-tmp"


def agent_companion(agent: AgentSpec, *, image: str, settings: Settings, code_volume: str) -> Companion | None:
    """Return the container of a user's agent; None for an agent by name.

    Args:
        agent: The spec.
        image: The runner's image: it has Harbor.
        settings: What the administrator decided.
        code_volume: Name of the pod's volume that holds the code.
    """
    if agent.code_path is None:
        return None
    folder = AGENT_SOCKET.rpartition("/")[0]
    code: dict[str, Any] = {"name": code_volume, "mountPath": agent.code_path, "readOnly": True}
    if agent.claimed is not None and agent.claimed.path:
        # Only the code: the claim may hold the tasks' solutions too.
        code["subPath"] = agent.claimed.path
    elif code_volume == AGENT_VOLUME:
        code["mountPath"] = AGENT_ROOT
    container = {
        "name": CONTAINER,
        **image_fields(settings, image),
        "restartPolicy": "Always",
        "command": ["python3", "-m", "whetstone_agent.agents.own.host"],
        "args": ["--socket", AGENT_SOCKET, "--code", agent.code_path],
        "env": [{"name": "HOME", "value": "/tmp"}, {"name": "PYTHONUNBUFFERED", "value": "1"}],  # noqa: S108
        "securityContext": container_security(),
        "volumeMounts": [code, {"name": _LINK, "mountPath": folder}, {"name": _HOME, "mountPath": "/tmp"}],  # noqa: S108
    }
    return Companion(
        container=container,
        mounts=({"name": _LINK, "mountPath": folder},),
        volumes=(empty_volume(_LINK), empty_volume(_HOME)),
    )


def code_claims(agent: AgentSpec) -> dict[str, bool]:
    """Return the claim of a user's agent, as read-only."""
    return {agent.in_claim.claim: False} if agent.in_claim is not None else {}


def code_config_maps(agent: AgentSpec) -> tuple[str, ...]:
    """Return the ConfigMap of a user's agent."""
    return (agent.config_map_ref.name,) if agent.config_map_ref is not None else ()


def code_volume(agent: AgentSpec) -> str:
    """Return the name of the volume that a Job's pod gives the code: `map-0`, for no runner reads other ConfigMaps."""
    if agent.claimed is not None:
        return claim_volume_name(agent.claimed.claim)
    return AGENT_VOLUME if agent.source is not None else "map-0"
