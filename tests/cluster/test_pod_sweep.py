"""What a killed runner leaves behind, and who clears it away: other runners of the same run are not disturbed."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from harbor.models.task.config import NetworkMode, NetworkPolicy
from support.node import main_process
from support.runner_namespace import runner_namespace
from support.sandbox import environment, started
from support.waiting import DEADLINE_SECONDS, machine_factor
from whetstone_agent.environment.cluster import Cluster
from whetstone_agent.environment.creation import sweep
from whetstone_agent.environment.errors import SandboxLostError
from whetstone_agent.environment.pod import PodEnvironment
from whetstone_agent.environment.watching import PodWatch

pytestmark = pytest.mark.cluster

CLOSED = NetworkPolicy(network_mode=NetworkMode.NO_NETWORK)


@pytest.fixture
async def namespace(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """A namespace of the test's own, in which the runner is."""
    async with runner_namespace(monkeypatch) as name:
        yield name


async def play(runner: PodEnvironment, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process be the runner in a pod."""
    pod = await (await Cluster.shared()).core.read_namespaced_pod(runner.pod_name, namespace)
    monkeypatch.setenv("POD_NAME", pod.metadata.name)
    monkeypatch.setenv("POD_UID", pod.metadata.uid)


async def kill(runner: PodEnvironment, namespace: str) -> None:
    """Kill a runner's process, and wait until Kubernetes knows that its pod has failed."""
    core = (await Cluster.shared()).core
    response = await core.read_namespaced_pod_without_preload_content(runner.pod_name, namespace)
    async with response:
        os.kill(main_process(await response.json(), "main"), signal.SIGKILL)
    watch = PodWatch(core, namespace=namespace, selector="whetstone.dev/benchmark-run=another")
    watch.begin()
    async with asyncio.timeout(DEADLINE_SECONDS * machine_factor()):
        await watch.until(str(runner.pod_name), lambda pod: (pod and pod["status"].get("phase") == "Failed") or None)
    await watch.close()


async def test_only_what_a_killed_runner_left_is_swept(
    namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await Cluster.shared()
    async with started(tmp_path) as first, started(tmp_path) as second:
        for runner in (first, second):
            metadata = {"labels": {"whetstone.dev/benchmark-run": "another"}}
            await cluster.core.patch_namespaced_pod(runner.pod_name, namespace, {"metadata": metadata})
        await play(first, namespace, monkeypatch)
        left = environment(tmp_path, network_policy=CLOSED)
        await left.start(force_build=False)
        await play(second, namespace, monkeypatch)
        async with started(tmp_path, network_policy=CLOSED) as kept:
            assert await sweep("run") == 0
            await kill(first, namespace)
            # The killed runner's pod is still there, so nothing but the sweep takes its trial away.
            assert (await left.exec("echo here")).stdout == "here\n"
            assert await sweep("run") == 1
            policies = (await cluster.networking.list_namespaced_network_policy(namespace)).items
            assert len(policies) == 1
            assert (await kept.exec("echo here")).stdout == "here\n"
            with pytest.raises(SandboxLostError):
                await left.exec("sleep 60")
