"""The work queue, in looptime: its clock jumps over every pause."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable

import pytest
from whetstone_operator.runtime.queue import Backoff, Result, WorkQueue

pytestmark = pytest.mark.looptime
STEADY = Backoff(first=1, longest=60, jitter=0)


async def run_queue(
    process: Callable[[str], Awaitable[Result]], keys: list[str], *, seconds: float, workers: int = 4
) -> WorkQueue[str]:
    queue = WorkQueue(process, workers=workers, backoff=STEADY)
    queue.start()
    for key in keys:
        queue.add(key)
    await asyncio.sleep(seconds)
    await queue.stop()
    return queue


async def test_equal_keys_that_wait_merge() -> None:
    seen: list[str] = []

    async def process(key: str) -> Result:
        seen.append(key)
        return Result()

    await run_queue(process, ["a", "b", "a", "a"], seconds=1)
    assert sorted(seen) == ["a", "b"]


async def test_key_made_due_while_worked_on_runs_once_more_and_never_beside_itself() -> None:
    active, most, runs = 0, 0, 0
    queue: WorkQueue[str]

    async def process(key: str) -> Result:
        nonlocal active, most, runs
        active, runs = active + 1, runs + 1
        most = max(most, active)
        if runs == 1:
            queue.add(key)
            queue.add(key)
        await asyncio.sleep(1)
        active -= 1
        return Result()

    queue = WorkQueue(process, workers=4, backoff=STEADY)
    queue.start()
    queue.add("a")
    await asyncio.sleep(10)
    await queue.stop()
    assert (runs, most) == (2, 1)


async def test_failures_come_back_with_doubled_pauses_and_success_resets_them() -> None:
    times: list[float] = []

    async def process(key: str) -> Result:
        times.append(asyncio.get_running_loop().time())
        if len(times) in (4, 5):
            return Result(requeue_after=10 if len(times) == 4 else None)
        if len(times) == 2:
            raise RuntimeError("unexpected")
        return Result(failed=True)

    await run_queue(process, ["a"], seconds=100)
    pauses = [round(later - earlier, 2) for earlier, later in itertools.pairwise(times)]
    assert pauses == [1, 2, 4, 10]


async def test_event_overtakes_a_delay_and_the_shortest_delay_counts() -> None:
    times: list[float] = []
    loop = asyncio.get_running_loop()

    async def process(key: str) -> Result:
        times.append(loop.time())
        return Result()

    queue = WorkQueue(process, workers=1, backoff=STEADY)
    queue.start()
    start = loop.time()
    queue.add("a", 50)
    queue.add("a", 20)
    queue.add("a", 40)
    await asyncio.sleep(30)
    queue.add("a", 50)
    await asyncio.sleep(1)
    queue.add("a")
    await asyncio.sleep(100)
    await queue.stop()
    assert [round(time - start) for time in times] == [20, 31]


async def test_workers_bound_what_runs_at_a_time() -> None:
    active, most = 0, 0

    async def process(key: str) -> Result:
        nonlocal active, most
        active += 1
        most = max(most, active)
        await asyncio.sleep(1)
        active -= 1
        return Result()

    queue = await run_queue(process, [str(n) for n in range(10)], seconds=20, workers=3)
    assert (most, queue.finished, queue.idle) == (3, 10, True)


def test_pause_grows_up_to_its_bound_with_jitter() -> None:
    backoff = Backoff(first=1, longest=300, jitter=0.1)
    assert 1 <= backoff.pause(1) <= 1.1
    assert 8 <= backoff.pause(4) <= 8.8
    assert 300 <= backoff.pause(1000) <= 330
