"""Limited networks of trials on a real node. The local cluster has no policy engine, and the runner finds that out."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from harbor.models.task.config import NetworkMode, NetworkPolicy
from support.runner_namespace import runner_namespace
from support.sandbox import started
from whetstone_agent.environment.cluster import Cluster, Runner
from whetstone_agent.environment.creation import sweep
from whetstone_agent.environment.enforcement import Enforcement, measure_enforcement
from whetstone_dev.images import references_of

pytestmark = pytest.mark.cluster


@pytest.fixture
async def namespace(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """A namespace of the test's own, in which the runner is."""
    async with runner_namespace(monkeypatch) as name:
        yield name


async def test_a_cluster_that_enforces_nothing_is_found_out(namespace: str) -> None:
    cluster, runner = await Cluster.shared(), Runner.from_environment()
    image = references_of()["benchmark"]
    found = await measure_enforcement(cluster, runner, benchmark_run="run", image=image)
    assert found is Enforcement.OPEN
    assert await sweep("run") == 0


async def test_trials_of_one_limit_share_a_policy_that_is_there_before_them(namespace: str, tmp_path: Path) -> None:
    cluster = await Cluster.shared()
    allowed = NetworkPolicy(network_mode=NetworkMode.ALLOWLIST, allowed_hosts=["192.0.2.7", "localhost"])
    async with started(tmp_path, network_policy=allowed) as first, started(tmp_path, network_policy=allowed):
        (policy,) = (await cluster.networking.list_namespaced_network_policy(namespace)).items
        pod = await cluster.core.read_namespaced_pod(first.pod_name, namespace)
        assert policy.spec.pod_selector.match_labels.items() <= pod.metadata.labels.items()
        assert policy.metadata.creation_timestamp <= pod.metadata.creation_timestamp
        hosts = (await first.exec("getent hosts localhost; cat /etc/resolv.conf")).stdout or ""
        assert "127.0.0.1" in hosts
        looked_up = await first.exec("getent hosts example.com", timeout_sec=5)
        assert looked_up.return_code not in (0, 124)
    assert await sweep("run") == 0
    assert (await cluster.networking.list_namespaced_network_policy(namespace)).items == []
