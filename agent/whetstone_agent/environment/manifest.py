"""The trial pod, as a pure function of what a trial needs."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from whetstone_api.vocabulary import Label

from whetstone_agent.environment.cluster import Runner

if TYPE_CHECKING:
    from harbor.models.task.config import EnvironmentConfig

CONTAINER: Final = "main"
COMPONENT: Final = "trial"
SESSION_ANNOTATION: Final = "whetstone.dev/harbor-session"
"""Harbor's name of the environment, in full; label values are too short for it."""
TMUX: Final = "/opt/whetstone/tmux"
"""Folder of the runner's image with a tmux that needs nothing of the image it runs in; the same place in the pod."""
_TMUX_VOLUME: Final = "tmux"
_KEEP_ALIVE: Final = "trap 'exit 143' TERM INT; while :; do sleep 3600 & wait $!; done"
"""Waits without using the processor; the shell reaps what commands leave behind, and ends at once when told to.

Not with 0: the kubelet calls a pod Succeeded whose container ends so, and drops the reason for which it evicted it.
"""
_MAX_NAME: Final = 63
_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")


@dataclass(frozen=True, kw_only=True)
class TrialPod:
    """What a trial asks of its pod."""

    runner: Runner
    benchmark_run: str
    """Name of the BenchmarkRun."""
    session: str
    """Harbor's session id."""
    nonce: str
    """Makes the name unique: a trial that is tried again must not meet the pod of its first try."""
    image: str
    deadline_seconds: int
    """Kubernetes ends the pod after that, whatever becomes of the runner."""
    requests: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str | None = None
    pull_secrets: tuple[str, ...] = ()
    """Secrets for the registry, as the runner's own pod has them."""
    network_key: str | None = None
    """Label value by which the run's NetworkPolicy selects the pod; absent for an open network."""
    host_aliases: Sequence[Mapping[str, Any]] = ()
    """Names that are pinned to addresses, in a pod with a limited network."""
    tmux_image: str | None = None
    """Image to copy tmux from; absent where the agent needs none."""


def asked_resources(environment: "EnvironmentConfig") -> dict[str, str]:
    """Return what a task asks for its container, as Kubernetes names it."""
    asked = {"cpu": environment.cpus, "memory": environment.memory_mb, "ephemeral-storage": environment.storage_mb}
    return {
        name: str(amount) if name == "cpu" else f"{amount}Mi" for name, amount in asked.items() if amount is not None
    }


def pod_name(pod: TrialPod) -> str:
    """Return the pod's name: run, task, and a suffix that no other try has."""
    suffix = sha256(f"{pod.session}/{pod.nonce}".encode()).hexdigest()[:8]
    readable = re.sub(r"[^a-z0-9]+", "-", f"{pod.benchmark_run}-{pod.session}".lower()).strip("-")
    return f"{readable[: _MAX_NAME - len(suffix) - 1].rstrip('-')}-{suffix}"


def proxy_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which a pod with an open network uses the runner's proxies.

    Args:
        environment: Variables of the runner.
    """
    return {name: environment[name] for name in _PROXIES if name in environment}


def pod_labels(benchmark_run: str) -> dict[str, str]:
    """Return the labels by which the trial pods of a run are found again."""
    return {
        Label.NAME.value: "whetstone-trial",
        Label.INSTANCE.value: benchmark_run,
        Label.COMPONENT.value: COMPONENT,
        Label.PART_OF.value: "whetstone",
        Label.MANAGED_BY.value: "whetstone-runner",
        Label.BENCHMARK_RUN.value: benchmark_run,
    }


def pod_selector(benchmark_run: str) -> str:
    """Return the label selector of a run's trial pods."""
    return f"{Label.BENCHMARK_RUN.value}={benchmark_run},{Label.COMPONENT.value}={COMPONENT}"


def trial_pod(pod: TrialPod) -> dict[str, Any]:
    """Return the manifest of a trial's pod."""
    metadata: dict[str, Any] = {
        "name": pod_name(pod),
        "namespace": pod.runner.namespace,
        "labels": pod_labels(pod.benchmark_run),
        "annotations": {SESSION_ANNOTATION: pod.session},
    }
    if pod.runner.pod_name and pod.runner.pod_uid:
        metadata["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "Pod", "name": pod.runner.pod_name, "uid": pod.runner.pod_uid}
        ]
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": pod.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", _KEEP_ALIVE],
        "env": [{"name": name, "value": value} for name, value in sorted(pod.env.items())],
        "resources": {"requests": dict(pod.requests), "limits": dict(pod.limits)},
        "securityContext": {"allowPrivilegeEscalation": False, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    if pod.workdir:
        container["workingDir"] = pod.workdir
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "activeDeadlineSeconds": pod.deadline_seconds,
        "containers": [container],
    }
    if pod.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in pod.pull_secrets]
    if pod.network_key is not None:
        metadata["labels"][Label.TRIAL_NETWORK.value] = pod.network_key
        # A look-up that nobody may answer fails at once there, instead of after seconds.
        spec |= {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["127.0.0.1"]}}
        spec |= {"hostAliases": list(pod.host_aliases)} if pod.host_aliases else {}
    if pod.tmux_image is not None:
        _add_tmux(spec, pod.tmux_image)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _add_tmux(spec: dict[str, Any], image: str) -> None:
    mount = {"name": _TMUX_VOLUME, "mountPath": "/tools"}
    spec["volumes"] = [{"name": _TMUX_VOLUME, "emptyDir": {}}]
    spec["initContainers"] = [
        {
            "name": "tmux",
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["cp", "-R", f"{TMUX}/.", "/tools"],
            "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}},
            "securityContext": {"allowPrivilegeEscalation": False, "seccompProfile": {"type": "RuntimeDefault"}},
            "volumeMounts": [mount],
        }
    ]
    spec["containers"][0]["volumeMounts"] = [{**mount, "mountPath": TMUX, "readOnly": True}]
