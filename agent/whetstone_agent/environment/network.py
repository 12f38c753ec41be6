"""Network modes of tasks as NetworkPolicies, one for each distinct mode and allowlist of a run.

A NetworkPolicy knows addresses, not names. Names of an allowlist are therefore resolved by the runner when the pod is
made, the policy allows those addresses, and the pod's hosts file pins the names to them; the pod needs no DNS then and
may ask none, so that names are no way out either. Enforcement is the network plugin's: `enforcement.py` measures it.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final

from harbor.models.task.config import NetworkMode
from harbor.models.task.config import NetworkPolicy as TaskNetwork
from whetstone_api.vocabulary import Label

from whetstone_agent.environment.cluster import Runner
from whetstone_agent.environment.errors import PodStartError

_KEY_LENGTH: Final = 10

Resolver = Callable[[str], Awaitable[Sequence[str]]]
"""Gives the addresses of a host name."""


@dataclass(frozen=True, kw_only=True)
class NetworkLimit:
    """What a pod may connect to: nothing but these. Nobody may connect to the pod."""

    blocks: tuple[str, ...] = ()
    """CIDR blocks."""
    names: tuple[tuple[str, tuple[str, ...]], ...] = field(default=())
    """Host names with the addresses that they are pinned to."""

    def key(self, runner: Runner) -> str:
        """Return the label value that ties pods to the policy; of one runner, since the policy goes with it."""
        text = "\n".join(sorted(self._all_blocks())) + f"\n{runner.pod_uid}"
        return sha256(text.encode()).hexdigest()[:_KEY_LENGTH]

    def host_aliases(self) -> list[dict[str, Any]]:
        """Return the pod's `hostAliases`."""
        by_address: dict[str, list[str]] = {}
        for name, addresses in self.names:
            for address in addresses:
                by_address.setdefault(address, []).append(name)
        return [{"ip": address, "hostnames": names} for address, names in sorted(by_address.items())]

    def policy(self, *, runner: Runner, benchmark_run: str) -> dict[str, Any]:
        """Return the NetworkPolicy."""
        key = self.key(runner)
        metadata: dict[str, Any] = {
            "name": f"{benchmark_run}-net-{key}",
            "namespace": runner.namespace,
            "labels": {Label.BENCHMARK_RUN.value: benchmark_run, Label.PART_OF.value: "whetstone"},
        }
        if runner.pod_name and runner.pod_uid:
            metadata["ownerReferences"] = [
                {"apiVersion": "v1", "kind": "Pod", "name": runner.pod_name, "uid": runner.pod_uid}
            ]
        blocks = sorted(self._all_blocks())
        egress = [{"to": [{"ipBlock": {"cidr": block}} for block in blocks]}] if blocks else []
        return {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": metadata,
            "spec": {
                "podSelector": {
                    "matchLabels": {Label.BENCHMARK_RUN.value: benchmark_run, Label.TRIAL_NETWORK.value: key}
                },
                "policyTypes": ["Ingress", "Egress"],
                "ingress": [],
                "egress": egress,
            },
        }

    def _all_blocks(self) -> set[str]:
        pinned = {str(ip_network(address)) for _, addresses in self.names for address in addresses}
        return set(self.blocks) | pinned


async def resolve_names(name: str) -> Sequence[str]:
    """Return the addresses of a host name, as this process sees them.

    Raises:
        OSError: It has none.
    """
    found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return sorted({str(address[0]) for *_, address in found})


async def network_limit(wanted: TaskNetwork, resolver: Resolver = resolve_names) -> NetworkLimit | None:
    """Return the limit that a task asks for; None for an open network.

    Raises:
        PodStartError: A name of the allowlist has no address.
    """
    if wanted.network_mode is NetworkMode.PUBLIC:
        return None
    blocks, names = [], []
    for entry in wanted.allowed_hosts:
        if _is_block(entry):
            blocks.append(str(ip_network(entry)))
            continue
        try:
            names.append((entry, tuple(await resolver(entry))))
        except OSError as error:
            raise PodStartError(f"the allowed host {entry!r} has no address here: {error}") from error
    return NetworkLimit(blocks=tuple(blocks), names=tuple(names))


def limits_network(folder: Path) -> bool:
    """Return whether a trial of a task has any sandbox without an open network."""
    from harbor.models.task.config import TaskConfig
    from harbor.models.task.task import Task
    from harbor.models.task.verifier_mode import resolve_step_verifier_mode, resolve_task_verifier_mode
    from harbor.models.trial.config import AgentConfig, EnvironmentConfig, VerifierConfig
    from harbor.trial.network_policy import resolve_trial_network_plan

    config: TaskConfig = Task(folder).config
    for step in config.steps or [None]:
        mode = resolve_task_verifier_mode(config) if step is None else resolve_step_verifier_mode(config, step)
        plan = resolve_trial_network_plan(
            config, AgentConfig(), EnvironmentConfig(), VerifierConfig(), step, verifier_mode=mode
        )
        phases = (plan.agent_env_baseline, plan.agent_phase, plan.verifier_phase_baseline, plan.verifier_phase)
        if any(phase.network_mode is not NetworkMode.PUBLIC for phase in phases):
            return True
    return False


def _is_block(entry: str) -> bool:
    try:
        ip_network(entry)
    except ValueError:
        return False
    return True
