"""A real API server with limits and a quota: which tasks have no room in a namespace, in its own words."""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
from integration.api import Api
from support.waiting import eventually
from whetstone_agent.environment.cluster import Cluster, Runner
from whetstone_agent.environment.creation import create_pod
from whetstone_agent.environment.errors import QuotaFullError, TooLargeError
from whetstone_agent.environment.manifest import TrialPod, trial_pod
from whetstone_dev.controlplane import ControlPlane

pytestmark = pytest.mark.integration
type Ask = Callable[[Mapping[str, str]], Any]
SMALL, LARGE = {"cpu": "1", "memory": "512Mi"}, {"cpu": "1", "memory": "4096Mi"}


@pytest.fixture
async def ask(
    control_plane: ControlPlane, api: Api, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Ask]:
    """Ask for a trial pod in a dry run, as the runner does before the first trial."""
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig))
    eventually(lambda: api.get("ServiceAccount", "default", namespace=namespace), what="the account of its pods")

    async def one(resources: Mapping[str, str]) -> None:
        pod = TrialPod(
            runner=Runner(namespace=namespace),
            benchmark_run="run",
            session="dry-run",
            nonce="1",
            image="task:1",
            deadline_seconds=60,
            requests=resources,
            limits=resources,
        )
        await create_pod(await Cluster.shared(), trial_pod(pod), dry_run=True)

    yield one
    await Cluster.close_shared()


async def test_a_limit_of_containers_is_told(api: Api, namespace: str, ask: Ask) -> None:
    await ask(LARGE)
    limits = [{"type": "Container", "max": {"memory": "1Gi"}}]
    limit_range = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": limits}}
    api.create(limit_range, namespace=namespace)
    with pytest.raises(TooLargeError, match="maximum memory usage per Container is 1Gi"):
        await ask(LARGE)
    await ask(SMALL)


async def test_a_quota_that_is_too_small_for_one_pod_is_told_from_one_that_is_full(
    api: Api, namespace: str, ask: Ask
) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}}
    api.create({**quota, "spec": {"hard": {"limits.memory": "1Gi"}}}, namespace=namespace)

    def is_counted() -> bool:
        found = api.get("ResourceQuota", "q", namespace=namespace)
        return bool(found and (found.get("status") or {}).get("hard"))

    eventually(is_counted, what="the quota is counted")
    await ask(SMALL)
    with pytest.raises(TooLargeError, match="exceeded quota: q"):
        await ask(LARGE)
    container = {"name": "c", "image": "i", "resources": {"limits": {"memory": "768Mi", "cpu": "1"}}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other"}, "spec": {"containers": [container]}}
    api.create(pod, namespace=namespace)
    with pytest.raises(QuotaFullError, match="exceeded quota: q"):
        await ask(SMALL)
