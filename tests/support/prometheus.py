"""A real Prometheus, and its promtool."""

import json
import math
import re
import socket
import string
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
DASHBOARDS = ALERTS.parents[1] / "dashboards"
_STEP_SECONDS = 5
_LABEL_VALUES = re.compile(r"label_values\((.+), (\w+)\)")
_DURATION = re.compile(r"(?<=\[)\d+m(?=\])|(?<=offset )\d+m")


def shortened(folder: Path, *, window: int, wait: int = 1) -> Path:
    """Return the alerts with other times: rates over some seconds instead of minutes, and a shorter wait.

    What an alert looks at and compares stays as it is; a test cannot wait for its minutes.

    Args:
        folder: Where the file is written.
        window: Seconds of every range and offset.
        wait: Seconds of every `for`.
    """
    rules = yaml.safe_load(ALERTS.read_text())
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        rule["expr"] = _DURATION.sub(f"{window}s", rule["expr"])
        if "for" in rule:
            rule["for"] = f"{wait}s"
    file = folder / "alerts.yaml"
    file.write_text(yaml.safe_dump(rules))
    return file


def alert_names() -> set[str]:
    """Return the names of all alerts of the chart."""
    rules = yaml.safe_load(ALERTS.read_text())
    return {rule["alert"] for group in rules["groups"] for rule in group["rules"]}


def panels(**variables: str) -> Iterator[tuple[str, str]]:
    """Yield each query of each dashboard, of a panel or a variable, and what to call it.

    Args:
        variables: Values of the dashboards' variables.
    """
    for path in sorted(DASHBOARDS.glob("*.json")):
        board = json.loads(path.read_text())
        asked = [(panel["title"], one["expr"]) for panel in board["panels"] for one in panel["targets"]]
        for one in (one for one in board["templating"]["list"] if one["type"] == "query"):
            found = _LABEL_VALUES.fullmatch(one["query"])
            assert found, one["query"]
            asked.append((f"${one['name']}", f"count by ({found[2]}) ({found[1]})"))
        for title, query in asked:
            yield f"{board['title']}: {title}", string.Template(query).substitute(variables)


def lint(text: str) -> str:
    """Return what promtool says against a page of series; nothing when it is as it should be."""
    command = [program("promtool"), "check", "metrics"]
    done = subprocess.run(command, input=text, text=True, capture_output=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


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
        self._began = time.time()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the result of an instant query; an AssertionError with its words when it cannot be run."""
        answer = self._client.get("/api/v1/query", params={"query": expression}).json()
        assert answer["status"] == "success", f"{expression}: {answer}"
        result: list[dict[str, Any]] = answer["data"]["result"]
        return result

    def has_shown(self, expression: str) -> bool:
        """Whether a query has had a value at some time; every few seconds are looked at."""
        span: dict[str, str | float] = {
            "query": expression,
            "start": self._began,
            "end": time.time(),
            "step": _STEP_SECONDS,
        }
        answer = self._client.get("/api/v1/query_range", params=span).json()
        assert answer["status"] == "success", f"{expression}: {answer}"
        values = (value for one in answer["data"]["result"] for _, value in one["values"])
        return any(not math.isnan(float(value)) for value in values)

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire."""
        alerts = self._client.get("/api/v1/alerts").json()["data"]["alerts"]
        return {one["labels"]["alertname"] for one in alerts if one["state"] == "firing"}

    def has_fired(self, alert: str) -> bool:
        """Whether an alert fires or has fired in the last minutes."""
        return bool(self.query(f'max_over_time(ALERTS{{alertname="{alert}", alertstate="firing"}}[10m])'))

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
    folder: Path, *, scrape: list[dict[str, Any]], host: str, rules: Path | None = None, seconds: int = 5
) -> Iterator[Prometheus]:
    """Run Prometheus.

    Args:
        folder: For its configuration, data and log.
        scrape: What it scrapes.
        host: Address on which it listens.
        rules: File of rules that it evaluates.
        seconds: Time between two scrapes.
    """
    times = {"scrape_interval": f"{seconds}s", "scrape_timeout": f"{seconds}s", "evaluation_interval": "1s"}
    config = {"global": times, "scrape_configs": scrape, "rule_files": [str(rules)] if rules else []}
    file = folder / "prometheus.yaml"
    file.write_text(yaml.safe_dump(config))
    with socket.socket() as free:
        free.bind((host, 0))
        port = int(free.getsockname()[1])
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
        eventually(lambda: found.ready() or process.poll() is not None, what="Prometheus", seconds=60)
        if process.poll() is not None:
            raise RuntimeError(f"Prometheus has ended: {(folder / 'prometheus.log').read_text()[-1000:]}")
        yield found
    finally:
        found.close()
        process.terminate()
        process.wait(30)
