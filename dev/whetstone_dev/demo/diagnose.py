"""What a failed demo shows: the conditions of every object and the last words of every pod that is not well."""

import json
from typing import Any

from whetstone_dev.demo.kube import WHETSTONE, Kube
from whetstone_dev.progress import say

LOG_LINES = 25
KINDS = ("ModelServer", "LoRATrainingJob", "BenchmarkRun")


def diagnose(kube: Kube, namespace: str) -> None:
    """Print the state of a namespace."""
    for kind in KINDS:
        for obj in kube.list(WHETSTONE, kind, namespace=namespace):
            _print_object(kind, obj)
    for pod in kube.list("v1", "Pod", namespace=namespace):
        _print_pod(kube, pod)


def _print_object(kind: str, obj: dict[str, Any]) -> None:
    status = obj.get("status") or {}
    say(f"{kind} {obj['metadata']['name']}:")
    for item in status.get("conditions") or []:
        say(f"    {item['type']}={item['status']} {item['reason']}: {item['message']}")
    for key in ("progress", "adapters", "failures", "aliases"):
        if status.get(key):
            say(f"    {key}: {json.dumps(status[key])}")


def _print_pod(kube: Kube, pod: dict[str, Any]) -> None:
    metadata, status = pod["metadata"], pod.get("status") or {}
    say(f"Pod {metadata['name']}: {status.get('phase')}")
    statuses = (status.get("initContainerStatuses") or []) + (status.get("containerStatuses") or [])
    for container in statuses:
        state = container.get("state") or {}
        ended = state.get("terminated") or {}
        if container.get("ready") or ended.get("exitCode") == 0:
            continue
        say(f"    container {container['name']}: {json.dumps(state)[:600]}")
        text = kube.logs(
            namespace=metadata["namespace"], pod=metadata["name"], container=container["name"], lines=LOG_LINES
        )
        for line in text.splitlines():
            print(f"        {line}")
