"""What a network mode means where NetworkPolicies hold: kube-router enforces them on a node of the tests' own."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from harbor.models.task.config import NetworkMode, NetworkPolicy
from support.local_cluster import enforcing
from support.runner_namespace import runner_namespace
from support.sandbox import started
from support.waiting import DEADLINE_SECONDS, machine_factor
from whetstone_agent.environment.cluster import Cluster, Runner
from whetstone_agent.environment.creation import sweep
from whetstone_agent.environment.enforcement import Enforcement, measure_enforcement
from whetstone_agent.environment.pod import PodEnvironment
from whetstone_agent.environment.preflight import judge_network
from whetstone_dev.cluster import Cluster as LocalCluster
from whetstone_dev.images import references_of

pytestmark = [pytest.mark.cluster, pytest.mark.long]

ALLOWED = "allowed.example"
PORT = 8080
SERVE = "import http.server as s; s.test(s.SimpleHTTPRequestHandler, port={})"


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalCluster]:
    """A cluster of the tests' own, whose policies hold; those of the shared one do not."""
    with enforcing() as cluster:
        yield cluster


@pytest.fixture
async def namespace(engine: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """A namespace of the test's own, in which the runner is."""
    monkeypatch.setenv("KUBECONFIG", str(engine.kubeconfig))
    async with runner_namespace(monkeypatch) as name:
        yield name


@pytest.fixture
async def outside(engine: LocalCluster) -> AsyncIterator[tuple[str, int]]:
    """A listener outside the cluster, as a place in the internet is."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), engine.ranges.host(), 0)
    async with server:
        yield server.sockets[0].getsockname()


@pytest.fixture
async def inside(namespace: str) -> tuple[str, str]:
    """Addresses of a pod that listens, and of its Service."""
    core = (await Cluster.shared()).core
    container = {
        "name": "main",
        "image": references_of()["benchmark"],
        "command": ["python3", "-c", SERVE.format(PORT)],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
    }
    pod = {"metadata": {"name": "listener", "labels": {"app": "listener"}}, "spec": {"containers": [container]}}
    await core.create_namespaced_pod(namespace, pod)
    service = {"metadata": {"name": "listener"}, "spec": {"selector": {"app": "listener"}, "ports": [{"port": PORT}]}}
    made = await core.create_namespaced_service(namespace, service)
    async with asyncio.timeout(4 * DEADLINE_SECONDS * machine_factor()):
        while True:
            address = (await core.read_namespaced_pod("listener", namespace)).status.pod_ip
            if address:
                return str(address), str(made.spec.cluster_ip)
            await asyncio.sleep(0.2)


async def address_of(sandbox: PodEnvironment, namespace: str) -> str:
    """Return the address of a trial's pod."""
    core = (await Cluster.shared()).core
    return str((await core.read_namespaced_pod(sandbox.pod_name, namespace)).status.pod_ip)


async def connects(sandbox: PodEnvironment, host: str, port: int) -> bool:
    """Whether a trial's pod can connect."""
    tried = await sandbox.exec(f"timeout 2 bash -c '</dev/tcp/{host}/{port}'")
    return tried.return_code == 0


async def settles(sandbox: PodEnvironment, place: tuple[str, int], *, through: bool) -> None:
    """Wait until connections come through, or do not: an engine takes a moment for a new pod."""
    async with asyncio.timeout(DEADLINE_SECONDS * machine_factor()):
        while True:
            if await connects(sandbox, *place) is through:
                return
            await asyncio.sleep(0.2)


async def test_a_task_without_a_network_reaches_nothing_and_a_public_one_everything(
    namespace: str, tmp_path: Path, inside: tuple[str, str], outside: tuple[str, int]
) -> None:
    pod, service = inside
    places = [(pod, PORT), (service, PORT), outside]
    none = NetworkPolicy(network_mode=NetworkMode.NO_NETWORK)
    async with started(tmp_path) as public, started(tmp_path, network_policy=none) as limited:
        for place in places:
            await settles(public, place, through=True)
        for place in places:
            await settles(limited, place, through=False)
        # Files still go in and out: that way leads over the node, and not over the pod's network.
        assert (await limited.exec("echo works")).stdout == "works\n"


async def test_an_allowlist_opens_its_names_and_nothing_else(
    namespace: str,
    tmp_path: Path,
    inside: tuple[str, str],
    outside: tuple[str, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask = asyncio.BaseEventLoop.getaddrinfo

    async def resolve(loop: Any, host: Any, port: Any, **options: Any) -> Any:
        return await ask(loop, outside[0] if host == ALLOWED else host, port, **options)

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", resolve)
    allowed = NetworkPolicy(network_mode=NetworkMode.ALLOWLIST, allowed_hosts=[ALLOWED])
    async with started(tmp_path, network_policy=allowed) as sandbox:
        await settles(sandbox, (ALLOWED, outside[1]), through=True)
        for address in inside:
            await settles(sandbox, (address, PORT), through=False)
        # What is not listed has no name either, and the listed name goes on working.
        assert not await connects(sandbox, "listener", PORT)
        assert await connects(sandbox, ALLOWED, outside[1])


async def test_nobody_connects_to_a_limited_pod(namespace: str, tmp_path: Path) -> None:
    image = references_of()["benchmark"]
    none = NetworkPolicy(network_mode=NetworkMode.NO_NETWORK)
    listening = {"docker_image": image, "workdir": "/tmp"}
    async with (
        started(tmp_path, network_policy=none, **listening) as limited,
        started(tmp_path, **listening) as open_to_all,
        started(tmp_path) as public,
    ):
        for sandbox in (limited, open_to_all):
            await sandbox.exec(f'python3 -c "{SERVE.format(PORT)}" >/dev/null 2>&1 &')
            await settles(sandbox, ("127.0.0.1", PORT), through=True)
        # A connection may fail for many reasons; the same one to the other pod shows that here it is the policy.
        await settles(public, (await address_of(open_to_all, namespace), PORT), through=True)
        await settles(public, (await address_of(limited, namespace), PORT), through=False)


async def test_the_runner_finds_that_policies_hold(namespace: str) -> None:
    cluster, runner = await Cluster.shared(), Runner.from_environment()
    found = await measure_enforcement(cluster, runner, benchmark_run="run", image=references_of()["benchmark"])
    assert found is Enforcement.ENFORCED
    judge_network(None, ["limited"], found)
    assert await sweep("run") == 0
