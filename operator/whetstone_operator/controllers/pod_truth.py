"""What keeps engine pods from becoming ready by their sidecars' own account. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from whetstone_api.pod_state import PodState
from whetstone_api.vocabulary import Reason

from whetstone_operator.controllers.adapters import PodView
from whetstone_operator.controllers.engine_pods import PodProblem, find_problem


def find_obstacle(pods: Sequence[Mapping[str, Any]], views: Sequence[PodView]) -> PodProblem | None:
    """Return what keeps pods from becoming ready: by their status, and by what they say themselves.

    What only the user can mend comes first, and then what a pod says now: the status of one whose engine was started
    again tells of the engine before.

    Args:
        pods: The pods as stored.
        views: The same as their sidecars see themselves.
    """
    found = [problem for problem in (find_told(views), find_problem(pods)) if problem is not None]
    return min(found, key=lambda problem: not problem.stalled, default=None)


def find_told(pods: Sequence[PodView]) -> PodProblem | None:
    """Return the worst that pods which are not ready say of themselves; the first by name of equally bad ones."""
    problems = [
        problem
        for pod in sorted(pods, key=lambda pod: pod.name)
        if not pod.ready and pod.state is not None and (problem := _told(pod.name, pod.state)) is not None
    ]
    return min(problems, key=lambda problem: not problem.stalled, default=None)


def _told(pod: str, state: PodState) -> PodProblem | None:
    if state.engine_stalled:
        message = f"the engine of pod {pod} takes requests and generates nothing; its container is started again"
        return PodProblem(pod=pod, container=None, reason=Reason.ENGINE_STALLED, message=message, stalled=False)
    if not state.engine_healthy or state.open:
        return None
    if state.base.status == "False":
        message = f"pod {pod} gets no clients: {state.base.message}"
        return PodProblem(pod=pod, container=None, reason=Reason.BASE_DIVERGENT, message=message, stalled=True)
    failed = next((adapter for adapter in state.adapters if adapter.reason), None)
    if state.settled and failed is not None:
        reason = Reason(failed.reason) if failed.reason in Reason else Reason.LOAD_FAILED
        message = f"pod {pod} waits for the required adapter {failed.name}: {failed.message}"
        return PodProblem(pod=pod, container=None, reason=reason, message=message, stalled=False)
    return None
