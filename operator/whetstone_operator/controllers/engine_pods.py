"""What keeps engine pods from becoming ready, read from their status. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError
from whetstone_api.reports import TerminationReport
from whetstone_api.vocabulary import Reason

from whetstone_operator.resources.source_volumes import FETCH_CONTAINER
from whetstone_operator.runtime.clock import from_rfc3339

IMAGE_PROBLEMS = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
CONFIG_PROBLEMS = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
CRASHES_UNTIL_STALLED = 3
"""One crash may be bad luck (memory, a late volume); so many need a look by the user."""


@dataclass(frozen=True, kw_only=True)
class PodProblem:
    """Why a pod does not run.

    Args:
        pod: Its name.
        container: The container concerned; None for the pod as a whole.
        reason: Reason for the condition.
        message: Sentence for people, without log lines.
        stalled: Whether only the user can help.
        crashed: Whether the container's log has more to say.
        cause: The kubelet's reason for its end, as `OOMKilled`.
    """

    pod: str
    container: str | None
    reason: Reason
    message: str
    stalled: bool
    crashed: bool = False
    cause: str = ""


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Return whether Kubernetes says that a pod is Ready."""
    conditions = pod.get("status", {}).get("conditions") or []
    return any(item.get("type") == "Ready" and item.get("status") == "True" for item in conditions)


def is_live(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod counts: neither going nor gone."""
    return not pod["metadata"].get("deletionTimestamp") and pod.get("status", {}).get("phase") not in (
        "Failed",
        "Succeeded",
    )


def find_problem(pods: Sequence[Mapping[str, Any]]) -> PodProblem | None:
    """Return the worst problem of the pods that are not ready; the first by name of equally bad ones."""
    problems = [
        problem
        for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))
        if not is_ready(pod) and (problem := _problem(pod)) is not None
    ]
    return min(problems, key=lambda problem: not problem.stalled, default=None)


def started_at(pods: Sequence[Mapping[str, Any]]) -> datetime | None:
    """Return when the oldest pod started; one that fetched its model first, when it had it."""
    times = [_fetched_at(pod) or pod.get("status", {}).get("startTime") for pod in pods]
    return min((from_rfc3339(time) for time in times if time), default=None)


def _fetched_at(pod: Mapping[str, Any]) -> str | None:
    ended = _fetch_state(pod).get("terminated") or {}
    return ended.get("finishedAt")


def _fetch_state(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the state of the container that fetches the base model; empty where there is none."""
    for container in pod.get("status", {}).get("initContainerStatuses") or []:
        if container["name"] == FETCH_CONTAINER:
            return container.get("state") or {}
    return {}


def _problem(pod: Mapping[str, Any]) -> PodProblem | None:
    name, status = str(pod["metadata"]["name"]), pod.get("status", {})
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            message = f"pod {name} cannot be scheduled: {condition.get('message', '')}"
            return PodProblem(pod=name, container=None, reason=Reason.POD_FAILED, message=message, stalled=False)
    containers = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    for container in containers:
        problem = _container_problem(name, container)
        if problem is not None:
            return problem
    return None


def fetching_pod(pods: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the name of a pod that is fetching its base model now."""
    return next((str(pod["metadata"]["name"]) for pod in pods if _fetch_state(pod).get("running")), None)


def _fetch_problem(pod: str, container: Mapping[str, Any]) -> PodProblem | None:
    """Return why a base model could not be fetched, in the words of the container that tried."""
    ended = (container.get("state") or {}).get("terminated") or (container.get("lastState") or {}).get("terminated")
    if not ended or not ended.get("exitCode"):
        return None
    try:
        report = TerminationReport.model_validate_json(ended.get("message") or "")
    except ValidationError:
        return None
    reason = Reason(report.reason) if report.reason in Reason else Reason.POD_FAILED
    message = f"{report.message} (pod {pod} tries again by itself)"
    stalled = reason is not Reason.SOURCE_UNREACHABLE
    return PodProblem(pod=pod, container=FETCH_CONTAINER, reason=reason, message=message, stalled=stalled)


def _container_problem(pod: str, container: Mapping[str, Any]) -> PodProblem | None:
    name = str(container["name"])
    if name == FETCH_CONTAINER:
        if container.get("state", {}).get("running"):
            return None
        if (problem := _fetch_problem(pod, container)) is not None:
            return problem
    waiting = container.get("state", {}).get("waiting") or {}
    cause, words = waiting.get("reason", ""), waiting.get("message", "")
    if cause in IMAGE_PROBLEMS:
        message = f"container {name} of pod {pod}: {cause}: {words}; check the image {container.get('image', '')}"
        return PodProblem(pod=pod, container=name, reason=Reason.POD_FAILED, message=message, stalled=True)
    if cause in CONFIG_PROBLEMS:
        message = f"container {name} of pod {pod}: {cause}: {words}"
        return PodProblem(pod=pod, container=name, reason=Reason.POD_FAILED, message=message, stalled=True)
    restarts = int(container.get("restartCount", 0))
    last = (container.get("lastState") or {}).get("terminated") or {}
    if cause == "CrashLoopBackOff" or (restarts and last.get("exitCode")):
        code, why = last.get("exitCode", "unknown"), last.get("reason", "")
        message = f"container {name} of pod {pod} ended {restarts} times, last with exit code {code} ({why})"
        return PodProblem(
            pod=pod,
            container=name,
            reason=Reason.ENGINE_FAILED if name == "engine" else Reason.POD_FAILED,
            message=message,
            stalled=restarts >= CRASHES_UNTIL_STALLED,
            crashed=True,
            cause=str(why),
        )
    return None
