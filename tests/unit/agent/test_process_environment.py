"""Trials as processes: with a view of the files of their own where that can be had, else one at a time."""

import asyncio
import logging
import os
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from harbor.models.task.config import EnvironmentConfig, NetworkMode, NetworkPolicy
from harbor.models.trial.paths import TrialPaths
from whetstone_agent.environment import process
from whetstone_agent.environment.errors import PodStartError, SandboxLostError
from whetstone_agent.environment.preflight import refuse_unlimited
from whetstone_agent.environment.process import ProcessEnvironment, may_make_namespaces
from whetstone_agent.failure import RunFailure
from whetstone_agent.recipe import comparability, recipe_digest
from whetstone_agent.run import run_benchmark
from whetstone_api.benchmark_suite import EnvironmentKind, TrialEnvironment
from whetstone_api.jobs import BenchmarkConfig
from whetstone_api.reports import ProgressReport
from whetstone_api.vocabulary import Reason


def environment(folder: Path, trial: str = "trial", *, workdir: str = "/app", **fields: Any) -> ProcessEnvironment:
    """Describe a trial's sandbox."""
    files = folder / "environment"
    files.mkdir(exist_ok=True)
    (files / "given.txt").write_text("given\n")
    return ProcessEnvironment(
        environment_dir=files,
        environment_name="task",
        session_id=f"{trial}__{secrets.token_hex(3)}__env",
        trial_paths=TrialPaths(trial_dir=folder / trial),
        task_env_config=EnvironmentConfig(docker_image="task:1", workdir=workdir),
        logger=logging.getLogger("test"),
        **fields,
    )


@asynccontextmanager
async def started(folder: Path, trial: str = "trial", **fields: Any) -> AsyncIterator[ProcessEnvironment]:
    """Run a sandbox as Harbor does."""
    sandbox = environment(folder, trial, **fields)
    try:
        await sandbox.start(force_build=False)
        yield sandbox
    finally:
        await sandbox.stop(delete=True)


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Play a pod without rights, whose root has the links of the runner's image; give the folder of the links."""
    monkeypatch.setattr(process, "may_make_namespaces", lambda: False)
    monkeypatch.setattr(process, "SHARED_ROOM", tmp_path / "room")
    monkeypatch.setattr(process, "PLACES", tuple(str(tmp_path / name) for name in ("app", "logs")))
    monkeypatch.setattr(ProcessEnvironment, "_mount_targets", lambda *_args, **_fields: [])
    return tmp_path


def running(word: str) -> list[str]:
    """Return the command lines of this machine with a word as an argument."""
    lines = [_read(path) for path in Path("/proc").glob("[0-9]*/cmdline")]
    return [line for line in lines if word in line.split("\0")]


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


own_view = pytest.mark.skipif(not may_make_namespaces(), reason="this process may not make namespaces")


@own_view
async def test_trials_at_the_same_time_do_not_see_each_others_files_and_processes(tmp_path: Path) -> None:
    async with started(tmp_path, "a") as first, started(tmp_path, "b") as second:
        assert (await first.exec("cat given.txt; touch done /etc/whetstone-was-here; pwd")).stdout == "given\n/app\n"
        assert (await second.exec("ls /app /etc/whetstone-was-here")).stdout == "/app:\ngiven.txt\n"
        await first.exec("sleep 4321 >/dev/null 2>&1 &")
        listed = "for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$f; echo; done"
        assert "sleep 4321" in ((await first.exec(listed)).stdout or "")
        assert "sleep 4321" not in ((await second.exec(listed)).stdout or "")
    assert (await asyncio.to_thread(os.listdir, "/etc")).count("whetstone-was-here") == 0
    assert running("4321") == []


@own_view
async def test_commands_end_as_in_a_pod(tmp_path: Path) -> None:
    async with started(tmp_path) as sandbox:
        result = await sandbox.exec("echo out; echo bad >&2; exit 7", env={"A": "1"})
        assert (result.return_code, result.stdout, result.stderr) == (7, "out\n", "bad\n")
        late = await sandbox.exec("echo begun; (sleep 600 & sleep 600) | cat", timeout_sec=1)
        assert (late.return_code, late.stdout) == (124, "begun\n")
        assert (await sandbox.exec("kill -KILL $$")).return_code == 137
    with pytest.raises(SandboxLostError, match="is not running"):
        await sandbox.exec("true")


@own_view
async def test_random_bytes_survive_the_way_there_and_back(tmp_path: Path) -> None:
    data = secrets.token_bytes(300_000)
    (tmp_path / "there.bin").write_bytes(data)
    async with started(tmp_path) as sandbox:
        await sandbox.upload_file(tmp_path / "there.bin", "/tests/deep er/there.bin")
        await sandbox.download_dir("/tests", tmp_path / "back")
    assert (tmp_path / "back" / "deep er" / "there.bin").read_bytes() == data


@own_view
async def test_a_trial_does_not_see_the_runners_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHETSTONE_SECRET", "s")
    async with started(tmp_path) as sandbox:
        assert "WHETSTONE_SECRET" not in ((await sandbox.exec("env")).stdout or "")


async def test_without_rights_trials_take_turns(shared: Path) -> None:
    app = str(shared / "app")
    async with started(shared, "a", workdir=app) as first:
        await first.exec("touch done")
        second = environment(shared, "b", workdir=app)
        waiting = asyncio.create_task(second.start(force_build=False))
        await asyncio.wait({waiting}, timeout=0.3)
        assert not waiting.done()
    await waiting
    assert (await second.exec("ls")).stdout == "given.txt\n"
    await second.stop(delete=True)


async def test_a_second_sandbox_of_a_trial_does_not_wait_for_the_first(shared: Path) -> None:
    app = str(shared / "app")
    async with started(shared, "a", workdir=app) as first:
        await first.exec("touch done")
        async with started(shared, "a", workdir=app) as verifier:
            assert (await verifier.exec("ls")).stdout == "given.txt\n"
        assert (await first.exec("ls")).stdout == "done\ngiven.txt\n"


async def test_what_a_trial_left_running_ends_with_it(shared: Path) -> None:
    async with started(shared, workdir=str(shared / "app")) as sandbox:
        await sandbox.exec("setsid sleep 4322 >/dev/null 2>&1 &")
    assert running("4322") == []


async def test_folders_that_belong_to_others_are_named(shared: Path) -> None:
    (shared / "app").mkdir()
    with pytest.raises(PodStartError, match=r"app -> .*run as root"):
        async with started(shared, workdir=str(shared / "app")):
            pass


def test_a_limited_network_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no-network"):
        environment(tmp_path, network_policy=NetworkPolicy(network_mode=NetworkMode.NO_NETWORK))


@own_view
async def test_a_run_in_processes_says_that_nothing_isolated_it(
    configure: Callable[..., BenchmarkConfig], dataset: Path
) -> None:
    use_absolute_paths(dataset)
    suite = {"dataset": {"uri": "pvc://data/tasks"}, "environment": {"kind": "Process"}}
    report = await run_benchmark(configure(agent={"name": "oracle"}, suite=suite), Reports())  # type: ignore[arg-type]
    assert report.result["results"]["mean"] == "1"
    assert "isolated from nothing" in report.message


def test_a_run_in_processes_refuses_tasks_with_a_limited_network(
    dataset: Path,
) -> None:
    settings = dataset / "task-2" / "task.toml"
    settings.write_text(settings.read_text().replace("[environment]", '[environment]\nnetwork_mode = "no-network"'))
    suite = TrialEnvironment(kind=EnvironmentKind.PROCESS)
    tasks = [SimpleNamespace(name=path.name, path=path) for path in sorted(dataset.iterdir())]
    with pytest.raises(RunFailure, match=r"1 tasks ask for no network .*task-2") as failure:
        refuse_unlimited(suite, tasks)  # type: ignore[arg-type]
    assert failure.value.reason is Reason.NETWORK_NOT_ENFORCED
    refuse_unlimited(None, tasks)  # type: ignore[arg-type]


def test_a_run_in_processes_is_another_recipe_and_not_comparable(configure: Callable[..., BenchmarkConfig]) -> None:
    suite = {"dataset": {"uri": "pvc://data/tasks"}, "environment": {"kind": "Process"}}
    pods, processes = configure(), configure(suite=suite)
    assert recipe_digest(pods, []) != recipe_digest(processes, [])
    assert comparability(pods, []).harness != comparability(processes, []).harness


def use_absolute_paths(dataset: Path) -> None:
    """Let the tests' tasks find their folders where a sandbox of its own has them."""
    for test in dataset.glob("*/*/*.sh"):
        test.write_text(test.read_text().replace("$SANDBOX", ""))


class Reports:
    """Takes the reports of a run."""

    def send(self, report: ProgressReport) -> None:
        """Forget it."""
