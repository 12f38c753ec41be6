"""Whether a task can run in our sandboxes, and if not, why. Harbor's own opinion is asked by the runner."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from whetstone_api.benchmark_suite import RefusedTask
from whetstone_api.vocabulary import TaskRefusal

from whetstone_artifacts.tasks.folder import TaskFolder, containers

PUBLIC, NO_NETWORK, ALLOWLIST = "public", "no-network", "allowlist"


@dataclass(frozen=True, kw_only=True)
class Offer:
    """What the sandboxes of a run can do beyond running an image."""

    network_modes: frozenset[str] = frozenset({PUBLIC})
    """Which of `public`, `no-network` and `allowlist` are enforced."""
    allowed_hosts: frozenset[str] = frozenset()
    """Which entries an allowlist may have: `address` (an IP address or a range), `hostname`, `wildcard`."""
    per_phase: bool = False
    """Whether agent and verifier of one container may have another network than the container."""


def refusal(task: TaskFolder, offer: Offer, images: Mapping[str, str]) -> RefusedTask | None:
    """Return why a task cannot run; None when it can.

    Args:
        task: The task.
        offer: What the sandboxes can do.
        images: Image by the folder of its container, where one was built or replaces that of `task.toml`.
    """
    for judge in (_compose, _system, _accelerator, _mcp_servers, _storage, _missing_file):
        found = judge(task)
        if found is not None:
            return _refused(task, *found)
    network = _network(task, offer)
    if network is not None:
        return _refused(task, TaskRefusal.NETWORK_MODE, network)
    for container in containers(task):
        if not container.image and container.folder not in images:
            return _refused(task, *_no_image(task, container.folder, container.section))
    return None


def _refused(task: TaskFolder, reason: TaskRefusal, message: str) -> RefusedTask:
    return RefusedTask(task=task.name, reason=reason, message=message)


type _Fault = tuple[TaskRefusal, str] | None


def _compose(task: TaskFolder) -> _Fault:
    for folder in ("environment", *(one.folder for one in containers(task))):
        if (task.path / folder / "docker-compose.yaml").exists():
            return (
                TaskRefusal.COMPOSE,
                f"needs docker compose ({folder}/docker-compose.yaml), which is not supported; exclude it",
            )
    return None


def _environments(task: TaskFolder) -> list[tuple[str, Mapping[str, Any]]]:
    """Return every table that describes a container, with its name in `task.toml`."""
    found = [("environment", task.config.get("environment") or {})]
    verifiers = [("verifier", task.config.get("verifier") or {})]
    verifiers += [(f"steps.{step['name']}.verifier", step.get("verifier") or {}) for step in task.steps]
    found += [(f"{name}.environment", one["environment"]) for name, one in verifiers if one.get("environment")]
    return found


def _system(task: TaskFolder) -> _Fault:
    for section, environment in _environments(task):
        system = environment.get("os", "linux")
        if system != "linux":
            return TaskRefusal.OPERATING_SYSTEM, f"asks for [{section}] os = {system!r}; only linux is supported"
    return None


def _accelerator(task: TaskFolder) -> _Fault:
    for section, environment in _environments(task):
        if environment.get("gpus") or environment.get("tpu"):
            return TaskRefusal.ACCELERATOR, f"asks for an accelerator in [{section}]; trial pods have none: exclude it"
    return None


def _mcp_servers(task: TaskFolder) -> _Fault:
    for section, environment in _environments(task):
        if environment.get("mcp_servers"):
            return TaskRefusal.MCP_SERVERS, f"asks for [{section}] mcp_servers, which are not supported; exclude it"
    return None


def _storage(task: TaskFolder) -> _Fault:
    for section, environment in _environments(task):
        room = environment.get("storage_mb")
        if room is not None and (not isinstance(room, int) or room < 1):
            message = (
                f"[{section}] storage_mb = {room!r} is no room to work in; name 1 megabyte or more, or leave it out"
            )
            return TaskRefusal.INVALID, message
    return None


def _missing_file(task: TaskFolder) -> _Fault:
    if task.steps:
        return None  # which files a step needs depends on others; Harbor judges that
    needed = ["instruction.md"]
    if all(container.folder != "tests" for container in containers(task)):
        needed.append("tests/test.sh")
    for path in needed:
        if not (task.path / path).is_file():
            return (
                TaskRefusal.INVALID,
                f"has no {path}; add it or leave the task out with spec.suite.harbor.tasks.exclude",
            )
    return None


def _no_image(task: TaskFolder, folder: str, section: str) -> tuple[TaskRefusal, str]:
    if (task.path / folder / "Dockerfile").is_file():
        message = (
            f"has no [{section}] docker_image and comes with {folder}/Dockerfile only; `whetstone bundle --push-images`"
            " builds and names its image, or name one in task.toml"
        )
        return TaskRefusal.IMAGE_MISSING, message
    return TaskRefusal.IMAGE_MISSING, f"has no [{section}] docker_image and nothing to build one from; name one there"


def _network(task: TaskFolder, offer: Offer) -> str | None:
    base = task.config.get("environment") or {}
    phases: list[tuple[str, Mapping[str, Any]]] = [
        (name, task.config.get(name) or {}) for name in ("agent", "verifier")
    ]
    for step in task.steps:
        phases += [(f"steps.{step['name']}.{name}", step.get(name) or {}) for name in ("agent", "verifier")]
    for section, environment in _environments(task):
        fault = _policy(section, environment, offer)
        if fault is not None:
            return fault
    for section, phase in phases:
        mode = phase.get("network_mode")
        if mode is None or (_policy_of(phase) == _policy_of(base) and not phase.get("environment")):
            continue
        fault = _policy(section, phase, offer)
        if fault is not None:
            return fault
        if not offer.per_phase:
            return (
                f"[{section}] network_mode = {mode!r} is not that of [environment], and cannot be changed while a pod"
                " runs; make them equal or exclude the task"
            )
    return None


def _policy_of(table: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    mode = table.get("network_mode") or (NO_NETWORK if table.get("allow_internet") is False else PUBLIC)
    return str(mode), tuple(sorted(map(str, table.get("allowed_hosts") or ())))


def _policy(section: str, table: Mapping[str, Any], offer: Offer) -> str | None:
    mode, hosts = _policy_of(table)
    if mode not in offer.network_modes:
        return f"[{section}] network_mode = {mode!r} cannot be enforced here; set it to 'public' or exclude the task"
    if mode == ALLOWLIST:
        for host in hosts:
            if host_kind(host) not in offer.allowed_hosts:
                return f"[{section}] allowed_hosts: {host} cannot be enforced here; name addresses or exclude the task"
    return None


def host_kind(entry: str) -> str:
    """Return what an entry of an allowlist is: `address` (an IP address or a range), `hostname` or `wildcard`."""
    if entry.startswith("*."):
        return "wildcard"
    try:
        ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return "hostname"
    return "address"
