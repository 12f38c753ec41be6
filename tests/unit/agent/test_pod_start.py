"""The limits on a pod's start: its queue and its way to running are counted apart."""

import asyncio
from collections.abc import Awaitable, Callable
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


async def begin(watch: PodWatch, knock: "Callable[[], Awaitable[bool]] | None" = None) -> "asyncio.Task[Any]":
    limits = {"queue_seconds": QUEUE_SECONDS, "start_seconds": START_SECONDS}
    task = asyncio.create_task(wait_until_running(watch, "p", "main", **limits, knock=knock))
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


async def test_a_container_that_answers_is_used_before_its_status_says_so(watch: PodWatch) -> None:
    answers = iter([False, True])

    async def knock() -> bool:
        return next(answers)

    starting = await begin(watch, knock)
    await asyncio.sleep(QUEUE_SECONDS - 1)
    see(watch, node="n")
    await asyncio.sleep(2)
    assert starting.done()
    await starting


async def test_a_container_that_does_not_answer_is_asked_a_few_times_and_then_waited_for(watch: PodWatch) -> None:
    asked = 0

    async def knock() -> bool:
        nonlocal asked
        asked += 1
        return False

    starting = await begin(watch, knock)
    see(watch, node="n")
    await asyncio.sleep(START_SECONDS - 1)
    assert 2 < asked < 10
    assert not starting.done()
    see(watch, node="n", running=True)
    await starting


async def test_a_knock_that_hangs_holds_nobody_up(watch: PodWatch) -> None:
    async def knock() -> bool:
        await asyncio.Event().wait()
        return True

    starting = await begin(watch, knock)
    see(watch, node="n")
    await asyncio.sleep(1)
    see(watch, node="n", running=True)
    await asyncio.sleep(0)
    await starting


async def test_a_start_that_fails_says_so_while_somebody_knocks(watch: PodWatch) -> None:
    async def knock() -> bool:
        return False

    starting = await begin(watch, knock)
    see(watch, node="n")
    await asyncio.sleep(0.1)
    watch.set_state("p", None)
    with pytest.raises(PodStartError, match="was deleted before it ran"):
        await starting
