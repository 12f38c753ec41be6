"""A namespace in which a test plays the benchmark runner, as its pod would."""

import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from whetstone_agent.environment.cluster import Cluster

KUBECONFIG = Path(__file__).parents[2] / "build" / "kubeconfig"


@asynccontextmanager
async def runner_namespace(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """Make a namespace, point the runner's environment variables at it, and delete it again."""
    name = f"trials-{secrets.token_hex(4)}"
    monkeypatch.setenv("KUBECONFIG", os.environ.get("KUBECONFIG", str(KUBECONFIG)))
    monkeypatch.setenv("POD_NAMESPACE", name)
    monkeypatch.delenv("POD_NAME", raising=False)
    monkeypatch.delenv("POD_UID", raising=False)
    cluster = await Cluster.shared()
    await cluster.core.create_namespace({"metadata": {"name": name}})
    try:
        yield name
    finally:
        await cluster.core.delete_namespace(name)
        await Cluster.close_shared()
