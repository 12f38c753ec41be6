"""Every panel of the dashboards shows data, in a real Prometheus that reads an operator, engine pods and a training."""

import math
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest
from integration.engine_pods import SERVER_SPEC, Kubelet
from integration.operator_process import OperatorProcess
from integration.world import ADAPTER, DATASET, RESULTS, World
from support.prometheus import Prometheus, lint, panels, running
from support.waiting import eventually
from whetstone_api.pod_state import SIDECAR_PORT
from whetstone_artifacts.reporting import Reporter
from whetstone_trainer.progress import Progress

pytestmark = [pytest.mark.integration, pytest.mark.long]


def job(name: str, targets: list[str], **labels: str) -> dict[str, Any]:
    return {"job_name": name, "honor_labels": True, "static_configs": [{"targets": targets, "labels": labels}]}


def finish_training(world: World, source: dict[str, Any]) -> None:
    """Train to the end: what is published lies in the claim already."""
    world.train("tuned")
    world.end_well(world.wait_job("tuned", "prepare"), dataset=DATASET)
    world.end_well(world.wait_job("tuned", "train"), adapter={**ADAPTER, **source}, metrics={})
    world.wait_reason("LoRATrainingJob", "tuned", "Succeeded", condition="Complete")


def start_training(world: World, operator: OperatorProcess, folder: Path) -> tuple[Progress, str]:
    """Begin another training that reports as a trainer does; return its progress and the address of its series."""
    output = {"adapter": {"uri": "pvc://adapters/other"}}
    world.train("other", output=output)
    world.end_well(world.wait_job("other", "prepare"), dataset=DATASET)
    pod = eventually(lambda: world.pods(world.wait_job("other", "train")), what="a pod")[0]
    (folder / "token").write_text(world.pod_token(pod))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    url = operator.report_url(f"loratrainingjobs/{world.namespace}/other")
    progress = Progress(Reporter(url=url, token_path=folder / "token", interval_seconds=0.1))
    progress.serve(port)
    return progress, f"127.0.0.1:{port}"


def run_benchmarks(world: World, operator: OperatorProcess) -> None:
    """End one run with figures, and let another one be at work."""
    world.benchmark("ended")
    result = {"results": RESULTS, "target": {"servedName": "base"}, "finishedAt": "2026-01-01T00:00:00Z"}
    world.end_well(world.wait_job("ended", "run"), **result)
    world.wait_reason("BenchmarkRun", "ended", "Succeeded", condition="Complete")
    world.benchmark("atwork")
    pod = eventually(lambda: world.pods(world.wait_job("atwork", "run")), what="a pod")[0]
    body = {"phase": "Trials", "step": 6, "maxSteps": 20, "passed": 3, "failed": 3, "void": 0, "running": 2}
    path = f"benchmarkruns/{world.namespace}/atwork"
    assert operator.report(path, token=world.pod_token(pod), body={**body, "etaSeconds": 40}) == 202


def has_data(prometheus: Prometheus, expression: str) -> bool:
    return any(not math.isnan(float(one["value"][1])) for one in prometheus.query(expression))


def test_every_panel_shows_data(world: World, operator: OperatorProcess, tmp_path: Path) -> None:
    world.claims()
    world.account()
    with Kubelet(world, operator, tmp_path / "node") as kubelet:
        adapters = [{"name": "tuned", "trainingJobRef": {"name": "tuned"}}]
        aliases = [{"name": "assistant", "targets": [{"adapter": "tuned"}]}]
        world.create("ModelServer", "server", {**SERVER_SPEC, "adapters": adapters, "aliases": aliases})
        [pod] = kubelet.running(1)
        pod.engine.shows_guard = True
        progress, training = start_training(world, operator, tmp_path)
        [name] = kubelet.pods
        here = {"namespace": world.namespace, "pod": name}
        operators = operator.report_url("").removeprefix("http://").partition("/")[0]
        scrape = [
            job("operator", [operators]),
            job("engines", [pod.url.removeprefix("http://"), f"{pod.address}:{SIDECAR_PORT}"], **here),
            job("trainings", [training], namespace=world.namespace, pod="other-0"),
        ]
        with running(tmp_path, scrape=scrape, host="127.0.0.1", seconds=1) as prometheus:
            eventually(lambda: prometheus.query("count(up == 1) == 4"), what="all are read", seconds=60)
            finish_training(world, kubelet.claims.publish("a", alpha=50))
            world.wait_reason("ModelServer", "server", "Verified", condition="AdapterEffective")
            run_benchmarks(world, operator)
            figures = {"loss": 1.0, "eta_seconds": 9.0, "tokens_per_second": 5.0}
            progress.step(step=1, max_steps=9, learning_rate=0.1, peak_memory_bytes=1024, **figures)

            def shown() -> bool:
                for streamed in (False, True):
                    body = {"model": "assistant", "prompt": "x", "stream": streamed}
                    answer = httpx.post(f"{pod.url}/v1/completions", json=body, trust_env=False)
                    assert answer.is_success, answer.text
                shown = panels(namespace=world.namespace, server="server")
                empty = [title for title, query in shown if not has_data(prometheus, query)]
                assert empty == []
                return True

            eventually(shown, what="data in every panel", seconds=60)
        for address in (pod.url, f"http://{pod.address}:{SIDECAR_PORT}", f"http://{training}"):
            page = httpx.get(f"{address}/metrics", trust_env=False).text
            # What the engine itself shows is not ours to mend.
            assert lint("".join(line for line in page.splitlines(keepends=True) if "vllm:" not in line)) == "", address
