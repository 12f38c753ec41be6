"""How a trial's pod may end, each told apart by its reason; and how trials wait for room instead of failing."""

import asyncio
import os
import secrets
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.node import main_process
from support.runner_namespace import runner_namespace
from support.sandbox import environment, started
from support.waiting import DEADLINE_SECONDS, machine_factor
from whetstone_agent.environment.cluster import Cluster
from whetstone_agent.environment.errors import (
    PodStartError,
    SandboxEvictedError,
    SandboxExpiredError,
    SandboxLostError,
    SandboxOutOfDiskError,
    SandboxOutOfMemoryError,
)
from whetstone_agent.environment.pod import PodEnvironment

pytestmark = pytest.mark.cluster

SMALL = {"requests": {"cpu": "20m", "memory": "32Mi"}, "limits": {"memory": "32Mi"}}
UNIFIED = Path("/sys/fs/cgroup/cgroup.controllers").exists()
FILL_MEMORY = "head -c 200000000 /dev/zero | tail"
"""`tail` keeps a line of zeros, which never ends."""


@pytest.fixture
async def namespace(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """A namespace of the test's own, in which the runner is."""
    async with runner_namespace(monkeypatch) as name:
        yield name


async def state(sandbox: PodEnvironment, namespace: str) -> dict[str, object]:
    """Read a sandbox's pod as the API server writes it, once it says that the container runs: commands may be taken a
    moment before."""
    cluster = await Cluster.shared()
    async with asyncio.timeout(DEADLINE_SECONDS * machine_factor()):
        while True:
            response = await cluster.core.read_namespaced_pod_without_preload_content(sandbox.pod_name, namespace)
            async with response:
                pod = dict(await response.json())
            if any("running" in one["state"] for one in pod["status"].get("containerStatuses") or []):
                return pod
            await asyncio.sleep(0.1)


async def ends_with(sandbox: PodEnvironment, cause: Callable[[], Awaitable[object]]) -> SandboxLostError:
    """Cause a pod's end while a command runs in it; give the error that the command ends with."""
    command = asyncio.create_task(sandbox.exec("touch /app/begun; sleep 600"))
    async with asyncio.timeout(DEADLINE_SECONDS * machine_factor()):
        await sandbox.exec("until [ -e /app/begun ]; do sleep 0.1; done")
        await cause()
        with pytest.raises(SandboxLostError) as failure:
            await command
    return failure.value


async def test_a_container_that_is_killed_is_named_with_its_exit_code(namespace: str, tmp_path: Path) -> None:
    async with started(tmp_path, options=SMALL) as sandbox:

        async def kill() -> None:
            os.kill(main_process(await state(sandbox, namespace), "main"), signal.SIGKILL)

        error = await ends_with(sandbox, kill)
    assert type(error) is SandboxLostError
    assert "exit code 137" in str(error)


async def test_an_evicted_pod_is_told_apart(namespace: str, tmp_path: Path) -> None:
    cluster = await Cluster.shared()
    async with started(tmp_path, options=SMALL) as sandbox:
        metadata = {"name": sandbox.pod_name, "namespace": namespace}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        error = await ends_with(
            sandbox, lambda: cluster.core.create_namespaced_pod_eviction(sandbox.pod_name, namespace, eviction)
        )
    assert type(error) is SandboxEvictedError
    assert "EvictionByEvictionAPI" in str(error)


@pytest.mark.skipif(UNIFIED, reason="on cgroup v2 the kubelet lets the kernel end whole containers")
async def test_the_kernel_may_end_a_command_and_the_trial_goes_on(namespace: str, tmp_path: Path) -> None:
    async with started(tmp_path, options=SMALL) as sandbox:
        result = await sandbox.exec(FILL_MEMORY)
        assert result.return_code == 137
        assert (await sandbox.exec("echo alive")).stdout == "alive\n"


async def test_a_container_out_of_memory_is_told_apart(namespace: str, tmp_path: Path) -> None:
    guaranteed = {"cpu": "100m", "memory": "32Mi"}
    async with started(tmp_path, options={"requests": guaranteed, "limits": guaranteed}) as sandbox:
        # Of all processes in the container the kernel shall take the first one; the others of such a pod come last.
        await sandbox.exec("echo 1000 >/proc/1/oom_score_adj")
        with pytest.raises(SandboxOutOfMemoryError, match=r"OOMKilled.*memory_mb"):
            await sandbox.exec(f"{FILL_MEMORY}; sleep 60")


async def test_a_pod_that_fills_its_disk_is_told_apart(namespace: str, tmp_path: Path) -> None:
    none = {"requests": None, "limits": None}
    async with started(tmp_path, options=none, storage_mb=16, memory_mb=64) as sandbox:
        container = (await state(sandbox, namespace))["spec"]["containers"][0]  # type: ignore[index]
        assert container["resources"]["limits"] == {"ephemeral-storage": "16Mi", "memory": "64Mi"}
        assert container["resources"]["requests"] == {"ephemeral-storage": "16Mi", "memory": "64Mi"}
        assert (await sandbox.exec("head -c 8000000 /dev/zero >/app/some")).return_code == 0
        with pytest.raises(SandboxOutOfDiskError, match=r"Evicted.*storage_mb"):
            await sandbox.exec("head -c 64000000 /dev/zero >/app/all; sleep 600")


async def test_a_verifier_that_fills_its_own_disk_is_not_the_agents_doing(namespace: str, tmp_path: Path) -> None:
    options = {"requests": None, "limits": None}
    async with started(tmp_path, options=options, storage_mb=16, session_id="t__verifier__trial") as sandbox:
        with pytest.raises(SandboxEvictedError, match=r"ephemeral"):
            await sandbox.exec("head -c 64000000 /dev/zero >/app/all; sleep 600")


async def test_a_pod_at_its_deadline_is_told_apart(namespace: str, tmp_path: Path) -> None:
    async with started(tmp_path, options=SMALL, deadline_seconds=6) as sandbox:
        with pytest.raises(SandboxExpiredError, match="DeadlineExceeded"):
            await sandbox.exec("sleep 600")


@asynccontextmanager
async def node_with(resource: str, count: int) -> AsyncIterator[None]:
    """Give the node a number of some resource of the test's own."""
    core = (await Cluster.shared()).core
    node = (await core.list_node()).items[0].metadata.name
    path = "/status/capacity/" + resource.replace("/", "~1")
    await core.patch_node_status(node, [{"op": "add", "path": path, "value": str(count)}])
    try:
        yield
    finally:
        await core.patch_node_status(node, [{"op": "remove", "path": path}])


async def second_starts_once_the_first_ends(tmp_path: Path, options: dict[str, object]) -> None:
    """Hold the room for one pod and start another: it waits, and runs when the first has gone."""
    (tmp_path / "second").mkdir()
    async with started(tmp_path, options=options):
        second = environment(tmp_path / "second", options=options)
        starting = asyncio.create_task(second.start(force_build=False))
        await asyncio.wait({starting}, timeout=4)
        assert not starting.done()
    try:
        await starting
        assert (await second.exec("echo ran")).stdout == "ran\n"
    finally:
        await second.stop(delete=True)


async def test_trials_queue_for_a_full_node(namespace: str, tmp_path: Path) -> None:
    resource = f"example.com/slot-{secrets.token_hex(3)}"
    async with node_with(resource, 1):
        both = {kind: {**SMALL[kind], resource: "1"} for kind in ("requests", "limits")}
        await second_starts_once_the_first_ends(tmp_path, both)


async def test_trials_queue_for_a_full_quota(namespace: str, tmp_path: Path) -> None:
    core = (await Cluster.shared()).core
    await core.create_namespaced_resource_quota(
        namespace, {"metadata": {"name": "trials"}, "spec": {"hard": {"count/pods": "1"}}}
    )
    await second_starts_once_the_first_ends(tmp_path, SMALL)


async def test_a_quota_that_stays_full_is_named(namespace: str, tmp_path: Path) -> None:
    core = (await Cluster.shared()).core
    await core.create_namespaced_resource_quota(
        namespace, {"metadata": {"name": "trials"}, "spec": {"hard": {"count/pods": "1"}}}
    )
    (tmp_path / "second").mkdir()
    async with started(tmp_path, options=SMALL):
        with pytest.raises(PodStartError, match=r"quota had no room .* within 1 s: .*exceeded quota: trials"):
            async with started(tmp_path / "second", options={**SMALL, "queue_seconds": 1}):
                pass
