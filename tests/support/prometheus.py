"""A real Prometheus, and its promtool."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml
from support.waiting import eventually
from whetstone_dev import packages
from whetstone_dev.places import CHECKOUT

ALERTS = CHECKOUT / "charts" / "whetstone" / "files" / "alerts.yaml"
_SECONDS = 5


def program(name: str) -> Path:
    """Return `prometheus` or `promtool`."""
    return packages.unpack("prometheus") / "usr" / "bin" / name


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
    folder: Path, *, scrape: list[dict[str, Any]], host: str, rules: Path | None = None
) -> Iterator[Prometheus]:
    """Run Prometheus.

    Args:
        folder: For its configuration, data and log.
        scrape: What it scrapes.
        host: Address on which it listens.
        rules: File of rules that it evaluates.
    """
    times = {"scrape_interval": f"{_SECONDS}s", "scrape_timeout": f"{_SECONDS}s", "evaluation_interval": "1s"}
    config = {"global": times, "scrape_configs": scrape, "rule_files": [str(rules)] if rules else []}
    file = folder / "prometheus.yaml"
    file.write_text(yaml.safe_dump(config))
    port = 19090 + time.monotonic_ns() % 1000
    command = [
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
