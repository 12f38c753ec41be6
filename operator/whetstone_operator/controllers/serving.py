"""The last step of a ModelServer: is it serving, and if not, what keeps it; and its gauges."""

from collections.abc import Mapping, Sequence
from typing import Any

from whetstone_api.modelserver import AdapterStatus, ModelServer
from whetstone_api.vocabulary import ConditionType, Reason

from whetstone_operator.controllers.adapters import PodView, ResolvedAdapter
from whetstone_operator.controllers.capacity import describe_memory
from whetstone_operator.controllers.engine_failure import advise
from whetstone_operator.controllers.engine_pods import PodProblem, fetching_pod, is_ready, started_at
from whetstone_operator.controllers.pod_truth import find_obstacle
from whetstone_operator.controllers.rollout import restart_causes
from whetstone_operator.kinds import Key
from whetstone_operator.metrics import ADAPTER_EFFECTIVE, ADAPTER_LOADED, PUBLISH_TO_EFFECTIVE, SERVER_READY
from whetstone_operator.runtime.clock import from_rfc3339
from whetstone_operator.runtime.outcome import Paused, Stalled, Waiting
from whetstone_operator.runtime.reconcile import Work

POLL_SECONDS = 30.0
"""The watches of pods and Deployments tell what happens; this is for what a watch has lost."""
LOG_LINES = 8
_LOG_LIMIT = 1500


async def settle_readiness(
    work: Work[ModelServer],
    *,
    deployment: Mapping[str, Any],
    pods: Sequence[Mapping[str, Any]],
    views: Sequence[PodView],
) -> None:
    """Finish when all wanted replicas are ready.

    Args:
        work: The server.
        deployment: Its Deployment as stored.
        pods: Its live pods.
        views: The same as their sidecars see themselves.

    Raises:
        Paused: No replicas are wanted.
        Stalled: A pod cannot run without a change by the user.
        Waiting: Pods are on their way.
    """
    wanted = int(deployment["spec"].get("replicas", 1))
    status = deployment.get("status") or {}
    ready, updated = int(status.get("readyReplicas", 0)), int(status.get("updatedReplicas", 0))
    gauge = SERVER_READY.labels(namespace=work.namespace, name=work.name)
    if wanted == 0:
        gauge.set(0)
        raise Paused(Reason.SCALED_TO_ZERO, "spec.replicas is 0; raise it to serve")
    current = status.get("observedGeneration") == deployment["metadata"].get("generation")
    if current and ready >= wanted and updated >= wanted and int(status.get("replicas", 0)) == wanted:
        gauge.set(1)
        work.finish(Reason.SERVING, f"{wanted} of {wanted} replicas ready")
        return
    gauge.set(0)
    problem = find_obstacle(pods, views)
    if problem is not None:
        await _raise_problem(work, problem)
    if (pod := fetching_pod(pods)) is not None:
        message = f"{ready} of {wanted} replicas ready; pod {pod} fetches {work.resource.spec.model.place.uri}"
        raise Waiting(Reason.FETCHING_MODEL, message, POLL_SECONDS)
    _check_startup(work, pods)
    causes = restart_causes(pods, deployment["spec"]["template"])
    if causes or ready >= wanted:
        why = f"; engines restart for: {', '.join(causes)}" if causes else ""
        message = f"{min(updated, wanted)} of {wanted} replicas run the current spec, {ready} ready{why}"
        raise Waiting(Reason.PROGRESSING, message, POLL_SECONDS)
    message = f"{ready} of {wanted} replicas ready; an engine is loading the model"
    raise Waiting(Reason.ENGINE_STARTING, message, POLL_SECONDS)


async def _raise_problem(work: Work[ModelServer], problem: PodProblem) -> None:
    message = problem.message
    if problem.crashed and problem.container:
        logs = await work.context.kube.logs(
            namespace=work.namespace,
            pod=problem.pod,
            container=problem.container,
            tail_lines=LOG_LINES,
            previous=True,
        )
        estimate = describe_memory(work.status)
        if advice := advise(container=problem.container, cause=problem.cause, log=logs, estimate=estimate):
            message += f"; {advice}"
        if logs.strip():
            message += f"; its last words: {logs.strip()[-_LOG_LIMIT:]}"
    if problem.stalled:
        work.look_again(POLL_SECONDS)
        raise Stalled(problem.reason, message)
    raise Waiting(problem.reason, message, POLL_SECONDS)


def _check_startup(work: Work[ModelServer], pods: Sequence[Mapping[str, Any]]) -> None:
    since = started_at(pods)
    limit = work.resource.spec.startup.timeout_seconds
    if since is None or any(is_ready(pod) for pod in pods) or work.status.get("readyReplicas"):
        return
    left = limit - (work.now - since).total_seconds()
    if left >= 0:
        work.look_again(left + 1)
    elif not _once_ready(work):
        work.look_again(POLL_SECONDS)
        message = f"no replica became ready within {limit} s; raise spec.startup.timeoutSeconds or see the pod's log"
        raise Stalled(Reason.STARTUP_TIMEOUT, message)


def _once_ready(work: Work[ModelServer]) -> bool:
    ready = work.conditions.get(ConditionType.READY)
    return ready is not None and ready["status"] == "True"


def report_metrics(
    work: Work[ModelServer],
    *,
    adapters: Sequence[ResolvedAdapter],
    statuses: Sequence[AdapterStatus],
    recorded: Mapping[str, AdapterStatus],
) -> None:
    """Set the gauges of a server's adapters; observe each publication that has just become effective."""
    for adapter, status in zip(adapters, statuses, strict=True):
        labels = {"namespace": work.namespace, "server": work.name, "adapter": adapter.name}
        ADAPTER_LOADED.labels(**labels).set(status.loaded_replicas)
        ADAPTER_EFFECTIVE.labels(**labels).set(status.effective_replicas)
        before = recorded.get(adapter.name)
        known = before is not None and before.digest == status.digest and before.effective_since is not None
        if status.effective_since and not known and adapter.published_at:
            seconds = from_rfc3339(status.effective_since) - from_rfc3339(adapter.published_at)
            PUBLISH_TO_EFFECTIVE.observe(max(0.0, seconds.total_seconds()))
    for name in recorded.keys() - {adapter.name for adapter in adapters}:
        for gauge in (ADAPTER_LOADED, ADAPTER_EFFECTIVE):
            gauge.remove_by_labels({"namespace": work.namespace, "server": work.name, "adapter": name})


def forget_metrics(key: Key) -> None:
    """Remove the gauges of a server that is gone."""
    SERVER_READY.remove_by_labels({"namespace": key.namespace, "name": key.name})
    for gauge in (ADAPTER_LOADED, ADAPTER_EFFECTIVE):
        gauge.remove_by_labels({"namespace": key.namespace, "server": key.name})
