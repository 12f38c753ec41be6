"""The yardstick: a minimal operator in Go, on controller-runtime, that makes the same children of the same objects."""

import json
import os
import re
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any, Final

import httpx
from integration.engine_pods import SERVER_SPEC
from integration.world import RUN_SPEC, TRAINING_SPEC
from support.waiting import eventually
from whetstone_api.benchmark_target import MeasuredTarget
from whetstone_api.benchmarkrun import BenchmarkRun
from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.modelserver import ModelServer
from whetstone_api.pod_state import DesiredState
from whetstone_api.source import Source
from whetstone_dev.commands import run
from whetstone_dev.places import CHECKOUT, cache_folder
from whetstone_operator.resources import benchmark, training
from whetstone_operator.resources import modelserver as server_children
from whetstone_operator.resources.access import access_policy, build_access

from whetstone_bench.floor import SETTINGS

SOURCES: Final = CHECKOUT / "bench" / "controller_runtime"
WORKERS: Final = SETTINGS.workers
_METADATA: Final = {"name": "template-name", "namespace": "template-namespace", "uid": "template-uid"}


def build_peer() -> Path:
    """Build the operator, which Go does from its cache when nothing changed; return the program."""
    program = cache_folder() / "bench" / "controller-runtime-operator"
    program.parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"}
    run(["go", "build", "-trimpath", "-ldflags", "-s -w", "-o", str(program), "."], cwd=SOURCES, env=environment)
    return program


def templates() -> dict[str, list[list[dict[str, Any]]]]:
    """Return the children of each kind by stage, for an object of a name that the peer replaces."""
    server = ModelServer.model_validate({"metadata": _METADATA, "spec": SERVER_SPEC, "status": {}})
    job = LoRATrainingJob.model_validate({"metadata": _METADATA, "spec": TRAINING_SPEC, "status": {}})
    measured = BenchmarkRun.model_validate({"metadata": _METADATA, "spec": RUN_SPEC, "status": {}})
    plan = training.TrainingPlan(
        job=job, base=Source(uri="pvc://models/base"), init=None, settings=SETTINGS, retry=None
    )
    runs = benchmark.BenchmarkPlan(
        run=measured,
        target=MeasuredTarget(served_name="base"),
        server_url="http://server.test/v1",
        adapter_source=None,
        baseline_output=None,
        settings=SETTINGS,
        retry=None,
    )
    return {
        "ModelServer": [_server_children(server)],
        "LoRATrainingJob": [
            [training.training_config_map(plan), training.training_job(plan, training.PREPARE)],
            [training.training_job(plan, training.TRAIN)],
        ],
        "BenchmarkRun": [[benchmark.benchmark_config_map(runs), benchmark.benchmark_job(runs)]],
    }


def _server_children(server: ModelServer) -> list[dict[str, Any]]:
    token = "0" * 64
    desired = DesiredState(
        server=server.metadata.name, revision=1, base_name="base", model_path="/m", max_rank=16, dtype="auto"
    )
    return [
        server_children.build_desired(server, desired),
        build_access(server, access_policy(server, {}, token=token), token=token),
        server_children.build_service(server),
        server_children.build_disruption_budget(server),
        server_children.build_deployment(server, SETTINGS),
    ]


class PeerProcess:
    """One peer.

    Args:
        program: What `build_peer` built.
        kubeconfig: Its credentials.
        namespace: The namespace that it serves.
        folder: For its templates and its log.
    """

    def __init__(self, program: Path, *, kubeconfig: Path, namespace: str, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._address = f"127.0.0.1:{free.getsockname()[1]}"
        self._log = folder / f"peer-{namespace}.log"
        file = folder / "templates.json"
        file.write_text(json.dumps(templates()))
        self._command = [str(program), str(file), namespace, self._address, str(WORKERS)]
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process and wait until it answers."""
        with self._log.open("ab") as sink:
            self._process = subprocess.Popen(self._command, env=self._environment, stdout=sink, stderr=sink)
        eventually(self._answers, what=f"the peer answers; its log is {self._log}", seconds=60)

    @property
    def pid(self) -> int:
        """Number of its process."""
        assert self._process is not None, "the peer does not run"
        return self._process.pid

    def kill(self) -> None:
        """End it as kill -9 does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it as Kubernetes does."""
        self._end(signal.SIGTERM)

    def reconciled(self) -> float:
        """Return how many reconciles it has done, less than 0 while keys are due."""
        text = self._metrics()
        if _total(text, "workqueue_depth") > 0:
            return -1
        return _total(text, "controller_runtime_reconcile_total")

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(60)
            self._process = None

    def _answers(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            raise RuntimeError(f"the peer ended:\n{self._log.read_text()[-4000:]}")
        try:
            return bool(self._metrics())
        except httpx.HTTPError:
            return False

    def _metrics(self) -> str:
        return httpx.get(f"http://{self._address}/metrics", trust_env=False, timeout=30).text


def _total(text: str, name: str) -> float:
    return sum(float(value) for value in re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", text, re.MULTILINE))
