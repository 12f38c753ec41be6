"""Objects for the tests of policies and builders."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from whetstone_api.benchmarkrun import BenchmarkRun
from whetstone_api.modelserver import ModelServer
from whetstone_operator.settings import Settings

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SETTINGS = Settings(
    server_image="r/server:1",
    engine_image="r/engine:1",
    trainer_image="r/trainer:1",
    benchmark_image="r/benchmark:1",
    operator_url="http://operator.system.svc:8080",
)


def digest(letter: str) -> str:
    """Return a content digest of one hex letter."""
    return "sha256:" + letter * 64


def model_server(**spec: Any) -> ModelServer:
    """Return a ModelServer `server` of namespace `ns`."""
    model = {"source": {"uri": "pvc://models/base"}, "servedName": "base"}
    metadata = {"name": "server", "namespace": "ns", "uid": "u1", "generation": 3}
    return ModelServer.model_validate({"metadata": metadata, "spec": {"model": model, **spec}})


def finished_run(
    name: str,
    *,
    minute: int,
    measured: str | None = "a",
    verdict: str | None = "Better",
    gates: str = "True",
    conditions: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    server: str = "server",
    tasks: int = 20,
    baseline: str = "baseline",
    suite: str = "5",
) -> BenchmarkRun:
    """Return a BenchmarkRun that ended at a minute past noon.

    Args:
        name: Its name.
        minute: When it ended.
        measured: Letter of the measured digest; None: the base.
        verdict: Verdict of its comparison; None: no baseline.
        gates: Status of GatePassed.
        conditions: Further conditions, by type.
        labels: Its labels.
        server: The server that it measured.
        tasks: Scored tasks.
        baseline: Name of its baseline.
        suite: Letter of the tasks' digest.
    """
    held = {"Complete": "True", "Valid": "True", "GatePassed": gates, **(conditions or {})}
    status: dict[str, Any] = {
        "conditions": [
            {
                "type": kind,
                "status": value,
                "reason": "NoGates" if value == "Unknown" else "R",
                "message": "",
                "lastTransitionTime": "2026-01-01T12:00:00Z",
            }
            for kind, value in held.items()
        ],
        "target": {"servedName": f"tuned--{measured}" if measured else "base"},
        "results": {
            "tasks": tasks,
            "trials": tasks,
            "mean": "0.5",
            "strictMean": "0.5",
            "coverage": "1",
            "void": 0,
        },
        "suiteDigest": digest(suite),
        "finishedAt": f"2026-01-01T12:{minute:02}:00Z",
    }
    if measured:
        status["target"]["digest"] = digest(measured)
    if verdict:
        status["comparison"] = {"baseline": baseline, "verdict": verdict}
    return BenchmarkRun.model_validate(
        {
            "metadata": {"name": name, "namespace": "ns", "labels": dict(labels or {"suite": "shell"})},
            "spec": {
                "target": {"modelServerRef": {"name": server}},
                "suite": {"harbor": {"dataset": {"uri": "pvc://data/tasks"}}},
                "output": {"uri": f"pvc://results/{name}"},
            },
            "status": status,
        }
    )
