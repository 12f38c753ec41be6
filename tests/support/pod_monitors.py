"""PodMonitors as the Prometheus operator carries them out: what a Prometheus scrapes of the pods that they select.

Debian's Prometheus cannot look for pods itself: they are written into a file with the labels that it would give them.
What it makes of these labels is its own work.

Sources: `generatePodMonitorConfig` in
https://github.com/prometheus-operator/prometheus-operator/blob/main/pkg/prometheus/promcfg.go, and
https://prometheus.io/docs/prometheus/latest/configuration/configuration/#pod
"""

import json
import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Between two looks at the pods."""

_KEYS = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
"""Keys of a relabeling that Prometheus spells otherwise."""


@contextmanager
def discovery(list_pods: Callable[[], Iterable[Mapping[str, Any]]], file: Path) -> Iterator[None]:
    """Keep a file of targets current while pods come and go.

    Args:
        list_pods: Returns all pods.
        file: Where the targets are written.
    """
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            try:
                found = [one for pod in list_pods() for one in targets(pod)]
            except (ApiException, HTTPError) as error:
                log.warning("pods are looked for again: %s", error)  # as a Prometheus does while there is no API server
            else:
                partial = file.with_suffix(".partial")
                partial.write_text(json.dumps(found))
                partial.replace(file)
            done.wait(LOOK_SECONDS)

    thread = threading.Thread(target=look, name="discovery")
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def targets(pod: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the targets that Prometheus makes of a pod: one for each port that a container declares."""
    metadata, address = pod["metadata"], pod.get("status", {}).get("podIP")
    if not address:
        return
    own = {"namespace": metadata["namespace"], "pod_name": metadata["name"], "pod_phase": pod["status"]["phase"]}
    own |= {f"pod_label_{_label(key)}": value for key, value in (metadata.get("labels") or {}).items()}
    for container in (*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or [])):
        for port in container.get("ports") or [{}]:
            found = {**own, "pod_container_name": container["name"], "pod_container_port_name": port.get("name") or ""}
            place = f"{address}:{port['containerPort']}" if port else address
            yield {"targets": [place], "labels": {f"__meta_kubernetes_{key}": value for key, value in found.items()}}


def scrape_configs(monitors: Iterable[Mapping[str, Any]], *, pods: Path) -> list[dict[str, Any]]:
    """Return the scrape configurations of PodMonitors.

    Args:
        monitors: The objects.
        pods: File of the targets that all pods make.
    """
    return [
        _config(monitor, number, endpoint, pods)
        for monitor in monitors
        for number, endpoint in enumerate(monitor["spec"]["podMetricsEndpoints"])
    ]


def _config(monitor: Mapping[str, Any], number: int, endpoint: Mapping[str, Any], pods: Path) -> dict[str, Any]:
    own, name, spec = monitor["metadata"]["namespace"], monitor["metadata"]["name"], monitor["spec"]
    chosen = spec.get("namespaceSelector", {})
    relabeling = [{"action": "drop", "source_labels": ["__meta_kubernetes_pod_phase"], "regex": "(Failed|Succeeded)"}]
    if not chosen.get("any"):
        relabeling.append(_keep("namespace", "|".join(chosen.get("matchNames") or [own])))
    relabeling += [_keep(f"pod_label_{_label(key)}", value) for key, value in spec["selector"]["matchLabels"].items()]
    relabeling.append(_keep("pod_container_port_name", endpoint["port"]))
    for label, source in (("namespace", "namespace"), ("container", "pod_container_name"), ("pod", "pod_name")):
        relabeling.append({"source_labels": [f"__meta_kubernetes_{source}"], "target_label": label})
    relabeling.append({"target_label": "job", "replacement": f"{own}/{name}"})
    for given in endpoint.get("relabelings", []):
        relabeling.append({_KEYS.get(key, key): value for key, value in given.items()})
    return {
        "job_name": f"podMonitor/{own}/{name}/{number}",
        "honor_labels": endpoint.get("honorLabels", False),
        "metrics_path": endpoint["path"],
        "file_sd_configs": [{"files": [str(pods)]}],
        "relabel_configs": relabeling,
    }


def _keep(source: str, value: str) -> dict[str, Any]:
    return {"action": "keep", "source_labels": [f"__meta_kubernetes_{source}"], "regex": value}


def _label(key: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]", "_", key)
