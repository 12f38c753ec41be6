"""The container of a user's agent on the real node: code that looks for a token finds none."""

import json
import secrets
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.runner_namespace import runner_namespace
from support.waiting import DEADLINE_SECONDS, machine_factor
from whetstone_agent.environment.cluster import Cluster
from whetstone_api.benchmark_target import MeasuredTarget
from whetstone_api.benchmarkrun import BenchmarkRun
from whetstone_dev.images import references_of
from whetstone_operator.resources.benchmark import RUNNER_ACCOUNT, BenchmarkPlan, benchmark_job
from whetstone_operator.settings import Settings

pytestmark = pytest.mark.cluster

CODE = '''
import os
from pathlib import Path
from harbor.agents.base import BaseAgent


def found():
    """Everything that looks like a JSON Web Token, in files and in environments."""
    for place, folders, names in os.walk("/", followlinks=False):
        if place == "/":
            folders[:] = [name for name in folders if name not in ("sys", "opt", "usr", "lib", "lib64", "bin", "sbin")]
        for name in names:
            if place.startswith("/proc") and name not in ("environ", "cmdline"):
                continue
            try:
                path = Path(place, name)
                if path.is_file() and b"eyJ" + b"hbGci" in path.read_bytes()[:1_000_000]:
                    yield str(path)
            except OSError:
                pass


class Thief(BaseAgent):
    @staticmethod
    def name():
        return "thief"

    def version(self):
        return "1"

    async def setup(self, environment):
        pass

    async def run(self, instruction, environment, context):
        context.metadata = {"tokens": list(found()), "keys": [name for name in os.environ if "WHETSTONE" in name]}
'''
RUNNER = """
import asyncio, json
from pathlib import Path
from harbor.models.agent.context import AgentContext
from whetstone_agent.agents.own.remote import OwnAgent
from whetstone_api.vocabulary import AGENT_SOCKET


async def main():
    more = {"import_path": "thief:Thief", "options": {}, "place": AGENT_SOCKET, "url": "http://127.0.0.1:9/v1"}
    agent = OwnAgent(Path("/tmp/logs"), "m", **more)
    await agent.load()
    context = AgentContext()
    await agent.run("steal", None, context)
    own = Path("/var/run/secrets/kubernetes.io/serviceaccount/token").read_text()
    print("FOUND", json.dumps({**context.metadata["agent"], "runner": own.startswith("eyJhbGci")}), flush=True)


asyncio.run(main())
"""


@pytest.fixture
async def namespace(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """A namespace of the test's own, with the runner's account."""
    async with runner_namespace(monkeypatch) as name:
        core = (await Cluster.shared()).core
        await core.create_namespaced_service_account(name, {"metadata": {"name": RUNNER_ACCOUNT}})
        yield name


def runner_pod(namespace: str) -> dict[str, Any]:
    """Return the pod of a run as the operator renders it, with another command, and scratch space for claims."""
    run = {
        "metadata": {"name": f"thief-{secrets.token_hex(2)}", "namespace": namespace, "uid": "u"},
        "spec": {
            "target": {"modelServerRef": {"name": "m"}},
            "suite": {"harbor": {"dataset": {"uri": "pvc://data/tasks"}}},
            "agent": {"importPath": "thief:Thief", "configMapRef": {"name": "thief"}},
            "output": {"uri": "pvc://results/b"},
        },
    }
    image = references_of()["benchmark"]
    plan = BenchmarkPlan(
        run=BenchmarkRun.model_validate(run),
        target=MeasuredTarget(served_name="m"),
        server_url="http://127.0.0.1:9/v1",
        adapter_source=None,
        baseline_output=None,
        settings=Settings(
            server_image=image, trainer_image=image, benchmark_image=image, operator_url="http://127.0.0.1:9"
        ),
        retry=None,
    )
    spec = benchmark_job(plan)["spec"]["template"]["spec"]
    spec["containers"][0] |= {"command": ["python3", "-c", RUNNER], "args": []}
    for volume in spec["volumes"]:
        if volume.pop("persistentVolumeClaim", None):
            volume["emptyDir"] = {}
        if volume.get("configMap", {}).get("name", "").endswith("-config"):
            del volume["configMap"]
            volume["emptyDir"] = {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "runner"}, "spec": spec}


async def ended(namespace: str) -> str:
    """Return the log of the runner's container once it has ended."""
    import asyncio

    core = (await Cluster.shared()).core
    async with asyncio.timeout(4 * DEADLINE_SECONDS * machine_factor()):
        while True:
            pod = await core.read_namespaced_pod("runner", namespace)
            states = [one.state.terminated for one in pod.status.container_statuses or []]
            if states and states[0] is not None:
                return str(await core.read_namespaced_pod_log("runner", namespace, container="main"))
            await asyncio.sleep(0.5)


async def test_code_of_a_user_finds_no_token_in_its_container(namespace: str) -> None:
    core = (await Cluster.shared()).core
    code = {"metadata": {"name": "thief"}, "data": {"thief.py": CODE}}
    await core.create_namespaced_config_map(namespace, code)
    await core.create_namespaced_pod(namespace, runner_pod(namespace))
    log = await ended(namespace)
    [line] = [line for line in log.splitlines() if line.startswith("FOUND")] or [log]
    assert json.loads(line.removeprefix("FOUND")) == {"tokens": [], "keys": [], "runner": True}
