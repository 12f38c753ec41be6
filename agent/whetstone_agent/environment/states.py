"""What a trial pod's state means. Pure.

A trial whose pod ends is void: the runner cannot know what the agent would have done. What is told apart is why, so
that the user knows what to change. Only a pod that wrote more than its task may take up ends by the agent's doing. A
process that the kernel kills for memory inside a pod that goes on is none of this: the command ends with its exit code,
as in any other sandbox.
"""

import re
from typing import Any, Final

from whetstone_agent.environment.errors import (
    PodStartError,
    SandboxEvictedError,
    SandboxExpiredError,
    SandboxLostError,
    SandboxOutOfDiskError,
    SandboxOutOfMemoryError,
)

PodState = dict[str, Any]

_HOPELESS_WAITS: Final = frozenset({"InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError"})
"""Reasons of a waiting container that no waiting cures."""
_EVICTING: Final = frozenset(
    {"Evicted", "Preempting", "Terminated", "NodeShutdown", "NodeLost", "NodeAffinity", "UnexpectedAdmissionError"}
)
"""Reasons of a failed pod by which the node or the scheduler took it away."""

_LAST_PHASES: Final = frozenset({"Failed", "Succeeded"})
_OWN_DISK: Final = re.compile(
    r"exceeded its local ephemeral storage limit|ephemeral local storage usage exceeds the total limit of containers"
)
"""What the kubelet says of a pod that it evicts for its own limit; a node that is full evicts in other words."""


def is_scheduled(pod: PodState) -> bool:
    """Return whether the pod has a node."""
    return bool(pod["spec"].get("nodeName"))


def is_running(pod: PodState, container: str) -> bool:
    """Return whether a container of the pod runs.

    Raises:
        PodStartError: It never will.
    """
    name, status = pod["metadata"]["name"], pod.get("status") or {}
    statuses = _containers(pod)
    waits = {(one.get("state", {}).get("waiting") or {}).get("reason") for one in statuses}
    if status.get("phase") in _LAST_PHASES or waits & _HOPELESS_WAITS:
        raise PodStartError(f"pod {name} cannot start: {words(pod)}")
    if pod["metadata"].get("deletionTimestamp"):
        raise PodStartError(f"pod {name} was deleted before it ran: {words(pod)}")
    return any(one["name"] == container and "running" in one.get("state", {}) for one in statuses)


def ending(pod: PodState | None, name: str) -> SandboxLostError | None:
    """Return why a pod that was running can be used no more; None while it can.

    Args:
        pod: Its state; None once it was deleted.
        name: Its name.
    """
    if pod is None:
        return SandboxLostError(f"pod {name} is gone: it was deleted while its trial was running")
    status = pod.get("status") or {}
    own = status.get("containerStatuses") or []
    ended = [one["state"]["terminated"] for one in own if one.get("state", {}).get("terminated")]
    disrupted = _condition(pod, "DisruptionTarget")
    deleted = bool(pod["metadata"].get("deletionTimestamp"))
    if status.get("phase") not in _LAST_PHASES and not ended and not deleted:
        return None
    text = f"pod {name} ended: {words(pod)}"
    if status.get("reason") == "DeadlineExceeded":
        return SandboxExpiredError(f"{text}; its activeDeadlineSeconds follow from the task's time limits")
    if _OWN_DISK.search(str(status.get("message") or "")):
        advice = "raise the task's storage_mb or trialResources.limits.ephemeral-storage if it must write that much"
        return SandboxOutOfDiskError(f"{text}; {advice}")
    if status.get("reason") in _EVICTING or disrupted is not None:
        return SandboxEvictedError(f"{text}; give trials requests (trialResources) or the nodes more room")
    if any(one.get("reason") == "OOMKilled" for one in ended):
        return SandboxOutOfMemoryError(f"{text}; raise the task's memory_mb or trialResources.limits.memory")
    return SandboxLostError(text)


def is_over(pod: PodState | None) -> bool:
    """Return whether nothing more will be said of a pod: it is gone, or has its last phase."""
    return pod is None or (pod.get("status") or {}).get("phase") in _LAST_PHASES


def words(pod: PodState) -> str:
    """Say in words why a pod does not run."""
    status = pod.get("status") or {}
    said = [
        f"{state.get('reason', '')}: {state.get('message') or _exit_words(state)}".strip(": ")
        for one in _containers(pod)
        for state in (one.get("state", {}).get("waiting"), one.get("state", {}).get("terminated"))
        if state
    ]
    scheduled, disrupted = _condition(pod, "PodScheduled"), _condition(pod, "DisruptionTarget")
    if scheduled is not None and scheduled["status"] == "False":
        said.append(f"{scheduled.get('reason', '')}: {scheduled.get('message', '')}")
    if disrupted is not None:
        said.append(f"{disrupted.get('reason', '')}: {disrupted.get('message', '')}")
    if status.get("reason") or status.get("message"):
        said.append(f"{status.get('reason', '')}: {status.get('message', '')}".strip(": "))
    return "; ".join(word for word in said if word) or f"phase {status.get('phase')}"


def _exit_words(state: dict[str, Any]) -> str:
    return f"exit code {state['exitCode']}" if "exitCode" in state else ""


def _containers(pod: PodState) -> list[dict[str, Any]]:
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]


def _condition(pod: PodState, kind: str) -> dict[str, Any] | None:
    for condition in (pod.get("status") or {}).get("conditions") or []:
        if condition["type"] == kind:
            return dict(condition) if kind != "DisruptionTarget" or condition["status"] == "True" else None
    return None
