"""Whether the cluster enforces NetworkPolicies, by trying: a connection that a policy forbids must not come through."""

import asyncio
import contextlib
import secrets
import socket
from collections.abc import AsyncIterator
from enum import StrEnum
from typing import Any, Final
from urllib.parse import urlsplit

from whetstone_agent.environment.cluster import Cluster, Runner
from whetstone_agent.environment.creation import create_pod, delete_pod, ensure_policy
from whetstone_agent.environment.manifest import CONTAINER, TrialPod, pod_selector, trial_pod
from whetstone_agent.environment.network import NetworkLimit
from whetstone_agent.environment.watching import PodState

_PROBE_SECONDS: Final = 180.0
"""For both probes to be scheduled, started and done."""
_LAG_SECONDS: Final = 20
"""A network plugin may take so long until a new pod's policy holds."""
_THROUGH: Final = 0
_BLOCKED: Final = 10
_SCRIPT: Final = f"""
import socket, sys, time
host, port, limited, end, failed = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "limited", time.monotonic(), 0
end += float(sys.argv[4])
while failed < 3 or not limited and time.monotonic() < end:
    try:
        socket.create_connection((host, port), timeout=1).close()
        failed = 0
        if not limited or time.monotonic() >= end:
            sys.exit({_THROUGH})
    except OSError:
        failed += 1
    time.sleep(0.2)
sys.exit({_BLOCKED})
"""
"""A limited pod tries until three connections in a row failed, or one came through at the end of its time. Another one
tries until one comes through: where only trials may connect to runners, a plugin must first know that it is one."""


class Enforcement(StrEnum):
    """What was measured."""

    ENFORCED = "Enforced"
    OPEN = "Open"
    """What a policy forbids comes through."""
    UNKNOWN = "Unknown"
    """Nothing comes through without a policy either, or the probes did not run."""


async def measure_enforcement(cluster: Cluster, runner: Runner, *, benchmark_run: str, image: str) -> Enforcement:
    """Let one pod with and one without a policy connect to this process.

    Args:
        cluster: Connection to the API server.
        runner: Owner of pods and policy.
        benchmark_run: Name of the run.
        image: An image with Python; the runner's own.

    Raises:
        TrialsForbiddenError: The API server does not let the runner make pods or policies.
    """
    limit = NetworkLimit()
    await ensure_policy(cluster, limit.policy(runner=runner, benchmark_run=benchmark_run))
    async with _listening(cluster) as (host, port), asyncio.TaskGroup() as group:
        free, limited = (
            group.create_task(
                _probe(
                    cluster, _probe_pod(runner, benchmark_run, image, (host, str(port), mode, str(_LAG_SECONDS)), key)
                )
            )
            for mode, key in (("free", None), ("limited", limit.key(runner)))
        )
    if limited.result() == _THROUGH:
        return Enforcement.OPEN
    if (free.result(), limited.result()) == (_THROUGH, _BLOCKED):
        return Enforcement.ENFORCED
    return Enforcement.UNKNOWN


@contextlib.asynccontextmanager
async def _listening(cluster: Cluster) -> AsyncIterator[tuple[str, int]]:
    """Take connections at the address that this process has towards the cluster."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "0.0.0.0", 0)  # noqa: S104 - pods call it
    api = urlsplit(cluster.host)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((api.hostname or "", api.port or 443))
        host = probe.getsockname()[0]
    async with server:
        yield host, server.sockets[0].getsockname()[1]


def _probe_pod(
    runner: Runner, benchmark_run: str, image: str, arguments: tuple[str, ...], network_key: str | None
) -> dict[str, Any]:
    pod = TrialPod(
        runner=runner,
        benchmark_run=benchmark_run,
        session="network-probe",
        nonce=secrets.token_hex(8),
        image=image,
        deadline_seconds=round(_PROBE_SECONDS),
        requests={"cpu": "10m", "memory": "32Mi"},
        limits={"memory": "128Mi"},
        network_key=network_key,
    )
    manifest = trial_pod(pod)
    manifest["spec"]["containers"][0]["command"] = ["python3", "-c", _SCRIPT, *arguments]
    return manifest


async def _probe(cluster: Cluster, manifest: dict[str, Any]) -> int | None:
    """Run a probe to its exit code; None where it has none in time."""
    name, namespace = manifest["metadata"]["name"], manifest["metadata"]["namespace"]
    selector = pod_selector(manifest["metadata"]["labels"]["whetstone.dev/benchmark-run"])
    watch = cluster.watch_pods(namespace=namespace, selector=selector)
    await create_pod(cluster, manifest)
    try:
        async with asyncio.timeout(_PROBE_SECONDS):
            code = await watch.until(name, _exit_code)
    except TimeoutError:
        return None
    finally:
        watch.forget(name)
        await delete_pod(cluster, namespace, name)
    return code if code >= 0 else None


def _exit_code(pod: PodState | None) -> int | None:
    """Return the exit code of a probe, -1 where it will have none."""
    if pod is None:
        return -1
    for status in pod["status"].get("containerStatuses") or []:
        ended = status.get("state", {}).get("terminated")
        if status["name"] == CONTAINER and ended:
            return int(ended["exitCode"])
    return -1 if pod["status"].get("phase") == "Failed" else None
