"""Tasks, configurations and runs for the runner's tests."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from unit.agent.fake_model import FakeModel, Mind
from whetstone_agent.harness import EnvironmentChoice
from whetstone_api.jobs import BenchmarkConfig
from whetstone_dev import packages

LOCAL = "unit.agent.local_process:LocalProcessEnvironment"
SERVED = "terminal--1a2b3c4d"


@pytest.fixture(autouse=True, scope="session")
def terminal() -> None:
    """Have the tmux that terminus-2 types into: it would fetch one itself, within its trial's time."""
    packages.install(packages.TERMINAL)


def write_task(parent: Path, name: str, *, file: str = "done.txt", metadata: str = "") -> Path:
    """Write a task that is solved when `file` exists in the working directory."""
    folder = parent / name
    texts = {
        "task.toml": f'schema_version = "1.4"\n[metadata]\nx = 1\n{metadata}\n[agent]\ntimeout_sec = 120\n'
        '[verifier]\ntimeout_sec = 120\n[environment]\ndocker_image = "task:1"\nworkdir = "/app"\ncpus = 1\n',
        "instruction.md": f"Create the file {file}.\n",
        "tests/test.sh": f'cd "$SANDBOX/app"\n[ -e {file} ] && reward=1 || reward=0\n'
        'echo $reward >"$SANDBOX/logs/verifier/reward.txt"\n',
        "solution/solve.sh": f'#!/bin/bash\ncd "$SANDBOX/app"\ntouch {file}\n',
        "environment/given.txt": "given\n",
    }
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Four tasks, `task-0` to `task-3`."""
    folder = tmp_path / "tasks"
    for number in range(4):
        write_task(folder, f"task-{number}", file=f"done_{number}.txt")
    return folder


@pytest.fixture
def configure(tmp_path: Path, dataset: Path) -> Callable[..., BenchmarkConfig]:
    """Make a configuration; keyword arguments replace its fields."""

    def make(**fields: Any) -> BenchmarkConfig:
        name = fields.pop("name", "candidate")
        return BenchmarkConfig.model_validate(
            {
                "object": {"kind": "BenchmarkRun", "namespace": "team", "name": name, "uid": "u1"},
                "reportUrl": "http://127.0.0.1:9/none",
                "serverUrl": "http://127.0.0.1:9/v1",
                "servedName": SERVED,
                "adapter": "terminal",
                "adapterDigest": "sha256:" + "1a2b3c4d" * 8,
                "suite": {"harbor": {"dataset": {"uri": "pvc://data/tasks"}}}["harbor"],
                "datasetPath": str(dataset),
                "agent": {"name": "whetstone", "parameters": {"maxTurns": 3, "maxTokens": 64}},
                "sampling": {"temperature": "0", "topP": "0.90", "seed": 7},
                "attempts": 1,
                "concurrency": 2,
                "outputPath": str(tmp_path / "results" / name),
                "outputUri": f"pvc://data/results/{name}",
                **fields,
            }
        )

    return make


@pytest.fixture
def local() -> EnvironmentChoice:
    """Trials as local processes."""
    return EnvironmentChoice(import_path=LOCAL, options={})


@pytest.fixture
async def model() -> AsyncIterator[Callable[..., Awaitable[tuple[FakeModel, str]]]]:
    """Start a fake model server; gives the server's object and its base URL."""
    servers = []

    async def start(mind: Mind, **fields: Any) -> tuple[FakeModel, str]:
        tls = fields.pop("tls", None)
        fake = FakeModel(name=fields.pop("name", SERVED), mind=mind, **fields)
        server = await fake.start(tls)
        servers.append(server)
        return fake, str(server.make_url("/v1"))

    yield start
    for server in servers:
        await server.close()
