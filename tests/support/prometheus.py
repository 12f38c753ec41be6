"""A real Prometheus that scrapes what the chart's PodMonitors say, as the Prometheus operator would set it up."""

import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml
from support.waiting import eventually
from whetstone_dev import packages
from whetstone_dev.commands import run
from whetstone_dev.gobuild import HELM, build
from whetstone_dev.places import CHECKOUT
from whetstone_dev.versions import KUBERNETES

CHART = CHECKOUT / "charts" / "whetstone"
ALERTS = CHART / "files" / "alerts.yaml"
_SECONDS = 5
_META = "__meta_kubernetes_pod"


def program(name: str) -> Path:
    """Return `prometheus` or `promtool`."""
    return packages.unpack("prometheus") / "usr" / "bin" / name


def pod_monitors() -> list[dict[str, Any]]:
    """Return the PodMonitors of the chart, installed for the whole cluster."""
    values = ["--set", "monitoring.scrape=true", "--set", "images.registry=r.test"]
    place = ["--namespace", "whetstone-system", "--kube-version", KUBERNETES]
    rendered = run([build(HELM), "template", "w", CHART, *place, *values])
    return [one for one in yaml.safe_load_all(rendered) if one and one["kind"] == "PodMonitor"]


def scrape_configs(monitors: list[dict[str, Any]], *, kubeconfig: Path) -> list[dict[str, Any]]:
    """Return Prometheus' own words for PodMonitors, as the Prometheus operator writes them.

    Source: https://github.com/prometheus-operator/prometheus-operator (`generatePodMonitorConfig`).
    """
    return [
        _scrape_config(monitor, endpoint, place, kubeconfig=kubeconfig)
        for monitor in monitors
        for place, endpoint in enumerate(monitor["spec"]["podMetricsEndpoints"])
    ]


def _scrape_config(
    monitor: Mapping[str, Any], endpoint: Mapping[str, Any], place: int, *, kubeconfig: Path
) -> dict[str, Any]:
    spec, metadata = monitor["spec"], monitor["metadata"]
    chosen = spec.get("namespaceSelector") or {"matchNames": [metadata["namespace"]]}
    discovery: dict[str, Any] = {"role": "pod", "kubeconfig_file": str(kubeconfig)}
    if "matchNames" in chosen:
        discovery["namespaces"] = {"names": chosen["matchNames"]}
    relabelings = [
        _keep(f"{_META}_label_{re.sub(r'[^a-zA-Z0-9_]', '_', label)}", value)
        for label, value in spec["selector"]["matchLabels"].items()
    ]
    if "port" in endpoint:
        relabelings.append(_keep(f"{_META}_container_port_name", endpoint["port"]))
    else:
        address = {"source_labels": [f"{_META}_ip"], "target_label": "__address__"}
        relabelings += [{**address, "replacement": f"$1:{endpoint['portNumber']}"}, _keep(f"{_META}_phase", "Running")]
    return {
        "job_name": f"podMonitor/{metadata['namespace']}/{metadata['name']}/{place}",
        "honor_labels": endpoint.get("honorLabels", False),
        "metrics_path": endpoint["path"],
        "kubernetes_sd_configs": [discovery],
        "relabel_configs": [
            *relabelings,
            {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
            {"source_labels": [f"{_META}_name"], "target_label": "pod"},
        ],
    }


def _keep(label: str, value: str) -> dict[str, Any]:
    return {"action": "keep", "source_labels": [label], "regex": re.escape(value)}


class Prometheus:
    """A running one.

    Args:
        url: Where it answers.
    """

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, trust_env=False, timeout=30)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the result of an instant query; an AssertionError with its words when it cannot be run."""
        answer = self._client.get("/api/v1/query", params={"query": expression}).json()
        assert answer["status"] == "success", f"{expression}: {answer}"
        result: list[dict[str, Any]] = answer["data"]["result"]
        return result

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire."""
        alerts = self._client.get("/api/v1/alerts").json()["data"]["alerts"]
        return {one["labels"]["alertname"] for one in alerts if one["state"] == "firing"}

    def ready(self) -> bool:
        """Whether it answers."""
        try:
            return self._client.get("/-/ready").is_success
        except httpx.HTTPError:
            return False

    def close(self) -> None:
        """Close the client."""
        self._client.close()


@contextmanager
def running(
    folder: Path, *, scrape: list[dict[str, Any]], host: str, namespace: str | None = None, rules: Path | None = None
) -> Iterator[Prometheus]:
    """Run Prometheus.

    Args:
        folder: For its configuration, data and log.
        scrape: What it scrapes.
        host: Address on which it listens.
        namespace: Network namespace that it runs in; this machine's own when absent.
        rules: File of rules that it evaluates.
    """
    times = {"scrape_interval": f"{_SECONDS}s", "scrape_timeout": f"{_SECONDS}s", "evaluation_interval": "1s"}
    config = {"global": times, "scrape_configs": scrape, "rule_files": [str(rules)] if rules else []}
    file = folder / "prometheus.yaml"
    file.write_text(yaml.safe_dump(config))
    enter = ["nsenter", f"--net=/run/netns/{namespace}"] if namespace else []
    port = 19090 + time.monotonic_ns() % 1000
    command = [
        *enter,
        str(program("prometheus")),
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={host}:{port}",
    ]
    with (folder / "prometheus.log").open("ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder)
    found = Prometheus(f"http://{host}:{port}")
    try:
        eventually(found.ready, what=f"Prometheus; its log is {folder / 'prometheus.log'}", seconds=60)
        yield found
    finally:
        found.close()
        process.terminate()
        process.wait(30)
