"""The limits on a pod's start: its queue and its way to running are counted apart."""

import asyncio
from typing import Any

import pytest
from whetstone_agent.environment.errors import PodStartError
from whetstone_agent.environment.starting import wait_until_running
from whetstone_agent.environment.watching import PodWatch

pytestmark = pytest.mark.looptime
QUEUE_SECONDS, START_SECONDS = 1000.0, 30.0


@pytest.fixture
def watch() -> PodWatch:
    """A watch that a test tells what it sees."""
    return PodWatch(None, namespace="n", selector="a=b")  # type: ignore[arg-type]


def see(watch: PodWatch, *, node: str | None = None, running: bool = False) -> None:
    state = {"running": {}} if running else {"waiting": {"reason": "ContainerCreating"}}
    condition = {"type": "PodScheduled", "status": str(node is not None), "reason": "Unschedulable", "message": "full"}
    containers = [{"name": "main", "state": state}] if node else []
    status = {"phase": "Pending", "conditions": [condition], "containerStatuses": containers}
    spec = {"nodeName": node} if node else {}
    watch.set_state("p", {"metadata": {"name": "p"}, "spec": spec, "status": status})


async def begin(watch: PodWatch) -> "asyncio.Task[Any]":
    limits = {"queue_seconds": QUEUE_SECONDS, "start_seconds": START_SECONDS}
    task = asyncio.create_task(wait_until_running(watch, "p", "main", **limits))
    await asyncio.sleep(0)
    see(watch)
    return task


async def test_a_long_queue_leaves_the_start_its_time(watch: PodWatch) -> None:
    starting = await begin(watch)
    await asyncio.sleep(QUEUE_SECONDS - 1)
    see(watch, node="n")
    await asyncio.sleep(START_SECONDS - 1)
    assert not starting.done()
    see(watch, node="n", running=True)
    await starting


async def test_a_queue_that_never_ends_says_why(watch: PodWatch) -> None:
    starting = await begin(watch)
    await asyncio.sleep(QUEUE_SECONDS + 1)
    with pytest.raises(PodStartError, match=r"found no node within 1000 s: Unschedulable: full"):
        await starting


async def test_a_start_that_hangs_on_its_node_says_why(watch: PodWatch) -> None:
    starting = await begin(watch)
    see(watch, node="n")
    await asyncio.sleep(START_SECONDS + 1)
    with pytest.raises(PodStartError, match=r"did not run on its node within 30 s: ContainerCreating"):
        await starting
