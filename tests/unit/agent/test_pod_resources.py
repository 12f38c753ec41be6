"""What a task asks of its pod, and what a run asks instead."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from harbor.models.task.config import EnvironmentConfig
from harbor.models.trial.paths import TrialPaths
from whetstone_agent.environment.cluster import RunnerPod
from whetstone_agent.environment.errors import SandboxEvictedError, SandboxLostError, SandboxOutOfDiskError
from whetstone_agent.environment.network import NetworkLimit
from whetstone_agent.environment.pod import PodEnvironment
from whetstone_agent.environment.watching import PodWatch


def sandbox(folder: Path, task: dict[str, Any], *, session: str = "t__ab__env", **options: Any) -> PodEnvironment:
    return PodEnvironment(
        environment_dir=folder,
        environment_name="t",
        session_id=session,
        trial_paths=TrialPaths(trial_dir=folder / "trial"),
        task_env_config=EnvironmentConfig.model_validate({"docker_image": "task:1", **task}),
        logger=logging.getLogger("test"),
        benchmark_run="run",
        deadline_seconds=60,
        **options,
    )


ASKED = {"cpus": 2, "memory_mb": 512, "storage_mb": 2048}


@pytest.mark.parametrize(
    ("task", "options", "requests", "limits"),
    [
        (ASKED, {}, *([{"cpu": "2", "memory": "512Mi", "ephemeral-storage": "2048Mi"}] * 2)),
        ({"storage": "2G"}, {}, *([{"ephemeral-storage": "2048Mi"}] * 2)),
        ({}, {}, {}, {}),
        (ASKED, {"limits": {"memory": "1Gi"}}, {}, {"memory": "1Gi"}),
        (ASKED, {"requests": {"ephemeral-storage": "1Gi"}}, {"ephemeral-storage": "1Gi"}, {}),
    ],
)
def test_a_pod_has_what_its_task_asks_for_unless_the_run_says_otherwise(
    tmp_path: Path, task: dict[str, Any], options: dict[str, Any], requests: dict[str, str], limits: dict[str, str]
) -> None:
    wanted = sandbox(tmp_path, task, **options)._wanted_pod(RunnerPod(), None)
    assert (dict(wanted.requests), dict(wanted.limits)) == (requests, limits)


def test_a_pod_with_an_open_network_uses_the_runners_proxies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example.com:3128")
    monkeypatch.setenv("no_proxy", ".svc")
    one = sandbox(tmp_path, {"env": {"no_proxy": "of the task"}})

    wanted, limited = one._wanted_pod(RunnerPod(), None), one._wanted_pod(RunnerPod(), NetworkLimit())

    assert wanted.env["HTTPS_PROXY"] == "http://proxy.example.com:3128"
    assert wanted.env["no_proxy"] == "of the task"
    assert "HTTPS_PROXY" not in limited.env


def kept_alive(**status: Any) -> dict[str, Any]:
    """Return a pod whose container ended as it does when the kubelet tells it to."""
    container = {"name": "main", "state": {"terminated": {"reason": "Completed", "exitCode": 0}}}
    return {
        "metadata": {"name": "p"},
        "spec": {"nodeName": "n"},
        "status": {"containerStatuses": [container], **status},
    }


@pytest.mark.parametrize(
    ("last", "kind"),
    [
        (kept_alive(phase="Failed", reason="Evicted", message="the node is full"), SandboxEvictedError),
        (kept_alive(phase="Failed"), SandboxLostError),
        (None, SandboxLostError),
    ],
)
async def test_the_reason_of_an_end_is_waited_for(
    tmp_path: Path, last: dict[str, Any] | None, kind: type[SandboxLostError]
) -> None:
    trial = sandbox(tmp_path, {})
    watch = PodWatch(None, namespace="n", selector="s")  # type: ignore[arg-type]
    trial._watch, trial._pod = watch, "p"
    working = asyncio.create_task(trial.working(asyncio.Event().wait()))
    await asyncio.sleep(0)
    watch.set_state("p", kept_alive(phase="Running"))
    done, _ = await asyncio.wait({working}, timeout=0.01)
    assert not done
    watch.set_state("p", last)
    with pytest.raises(SandboxLostError) as failure:
        await working
    assert type(failure.value) is kind


@pytest.mark.parametrize(
    ("session", "kind"), [("t__ab__env", SandboxOutOfDiskError), ("t__ab__verifier__trial", SandboxEvictedError)]
)
def test_only_where_the_agent_worked_a_full_disk_is_its_doing(
    tmp_path: Path, session: str, kind: type[SandboxLostError]
) -> None:
    status = {"phase": "Failed", "reason": "Evicted"}
    status["message"] = 'Container main exceeded its local ephemeral storage limit "16Mi". '
    pod = {"metadata": {"name": "p"}, "spec": {"nodeName": "n"}, "status": status}
    assert type(sandbox(tmp_path, {}, session=session)._ending(pod)) is kind
