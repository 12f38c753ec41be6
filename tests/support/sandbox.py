"""A trial's sandbox, started and stopped as Harbor does."""

import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from harbor.models.task.config import EnvironmentConfig
from harbor.models.trial.paths import TrialPaths
from whetstone_agent.environment.pod import PodEnvironment
from whetstone_dev.images import references_of


def environment(folder: Path, **fields: Any) -> PodEnvironment:
    """Describe a trial's sandbox."""
    deadline = fields.pop("deadline_seconds", 600)
    options = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}, **fields.pop("options", {})}
    network = fields.pop("network_policy", None)
    session = fields.pop("session_id", f"task-1__{secrets.token_hex(3)}__env")
    task = {"docker_image": references_of()["task"], "workdir": "/app", "build_timeout_sec": 120, **fields}
    files = folder / "environment"
    files.mkdir(exist_ok=True)
    return PodEnvironment(
        environment_dir=files,
        environment_name="task",
        session_id=session,
        trial_paths=TrialPaths(trial_dir=folder / "trial"),
        task_env_config=EnvironmentConfig.model_validate(task),
        logger=logging.getLogger("test"),
        network_policy=network,
        benchmark_run="run",
        deadline_seconds=deadline,
        **options,
    )


@asynccontextmanager
async def started(folder: Path, **fields: Any) -> AsyncIterator[PodEnvironment]:
    """Run a sandbox as Harbor does."""
    sandbox = environment(folder, **fields)
    try:
        await sandbox.start(force_build=False)
        yield sandbox
    finally:
        await sandbox.stop(delete=True)
