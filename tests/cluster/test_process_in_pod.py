"""Trials as processes of a runner's pod under the `restricted` standard: real Harbor, the oracle, one after another."""

import json
import secrets
from collections.abc import AsyncIterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from support.runner_namespace import runner_namespace
from unit.agent.conftest import write_task
from whetstone_agent.environment import transfer
from whetstone_agent.environment.cluster import Cluster
from whetstone_agent.environment.exec import PodAddress, PodExec
from whetstone_agent.environment.starting import wait_until_running
from whetstone_dev.images import references_of

pytestmark = pytest.mark.cluster

TASKS = 3
RUN = """
import asyncio, json, sys
from whetstone_agent.run import run_benchmark
from whetstone_api.jobs import BenchmarkConfig

class Reports:
    def send(self, report):
        pass

config = BenchmarkConfig.model_validate(json.load(open("/tmp/given/config.json")))
report = asyncio.run(run_benchmark(config, Reports()))
print(json.dumps({"message": report.message, "results": report.result["results"]}))
"""


@pytest.fixture
async def namespace(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """A namespace of the test's own, in which the runner is."""
    async with runner_namespace(monkeypatch) as name:
        yield name


def runner_pod(namespace: str) -> dict[str, Any]:
    """Return a pod as the operator makes a runner's, that waits for commands."""
    container = {
        "name": "main",
        "image": references_of()["benchmark"],
        "command": ["sleep", "600"],
        "env": [{"name": "HOME", "value": "/tmp"}],
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"runner-{secrets.token_hex(3)}", "namespace": namespace, "labels": {"a": "runner"}},
        "spec": {
            "automountServiceAccountToken": False,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "fsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            "volumes": [{"name": "tmp", "emptyDir": {}}],
        },
    }


def given(folder: Path) -> Path:
    """Write tasks and configuration as the runner finds them."""
    for number in range(TASKS):
        task = write_task(folder / "tasks", f"task-{number}", file=f"done_{number}.txt")
        for script in task.glob("*/*.sh"):
            script.write_text(script.read_text().replace("$SANDBOX", ""))
    config = {
        "object": {"kind": "BenchmarkRun", "namespace": "team", "name": "oracle", "uid": "u"},
        "reportUrl": "http://127.0.0.1:9/none",
        "serverUrl": "http://127.0.0.1:9/v1",
        "servedName": "base",
        "suite": {"dataset": {"uri": "pvc://data/tasks"}, "environment": {"kind": "Process"}},
        "datasetPath": "/tmp/given/tasks",
        "agent": {"name": "oracle"},
        "sampling": {},
        "attempts": 1,
        "concurrency": TASKS,
        "outputPath": "/tmp/results/oracle",
        "outputUri": "pvc://results/oracle",
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "run.py").write_text(RUN)
    return folder


async def test_trials_take_turns_in_the_runners_own_container(namespace: str, tmp_path: Path) -> None:
    cluster, pod = await Cluster.shared(), runner_pod(namespace)
    name = pod["metadata"]["name"]
    await cluster.core.patch_namespace(
        namespace, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    )
    await cluster.core.create_namespaced_pod(namespace, pod)
    watch = cluster.watch_pods(namespace=namespace, selector="a=runner")
    await wait_until_running(watch, name, "main", queue_seconds=120, start_seconds=120)
    runner = PodExec(cluster, PodAddress(namespace=namespace, pod=name, container="main"))
    await transfer.upload_dir(runner, given(tmp_path), PurePosixPath("/tmp/given"))
    done = await runner.run("python3 /tmp/given/run.py", timeout_seconds=120)
    assert done.exit_code == 0, done.stderr.decode()[-2000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert (report["results"]["mean"], report["results"]["tasks"], report["results"]["void"]) == ("1", TASKS, 0)
    assert "isolated from nothing" in report["message"]
