"""Wait for a pod: as long as a queue may take for a node, and then for its container."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from whetstone_agent.environment import states
from whetstone_agent.environment.errors import PodStartError
from whetstone_agent.environment.watching import PodState, PodWatch

_KNOCK_PAUSES: Final = (0.4, 0.2, 0.2, 0.3, 0.4, 0.6)
"""Seconds before each try of a container that should run by now. A kubelet looks at its containers once a second and
tells the API server after that; more tries would cost more than they save, and a pulled image takes longer anyway."""


async def wait_until_running(
    watch: PodWatch,
    name: str,
    container: str,
    *,
    queue_seconds: float,
    start_seconds: float,
    knock: Callable[[], Awaitable[bool]] | None = None,
) -> None:
    """Wait until a container of a pod runs.

    Args:
        watch: Sees the pod.
        name: The pod.
        container: Its container.
        queue_seconds: How long it may wait for a node.
        start_seconds: How long it may take from there to running.
        knock: Asks the container itself, which knows it sooner than the pod's status says it.

    Raises:
        PodStartError: One of both took too long, or cannot come.
    """
    await _reach(watch, name, states.is_scheduled, queue_seconds, "found no node")
    state = _reach(watch, name, lambda pod: states.is_running(pod, container), start_seconds, "did not run on its node")
    if knock is None:
        return await state
    running, answering = asyncio.ensure_future(state), asyncio.create_task(_answers(knock))
    try:
        await asyncio.wait({running, answering}, return_when=asyncio.FIRST_COMPLETED)
        if running.done() or not answering.result():
            await running
    finally:
        for task in (running, answering):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError, PodStartError):
            await running
        with contextlib.suppress(asyncio.CancelledError):
            await answering


async def _answers(knock: Callable[[], Awaitable[bool]]) -> bool:
    for pause in _KNOCK_PAUSES:
        await asyncio.sleep(pause)
        if await knock():
            return True
    return False


async def _reach(
    watch: PodWatch, name: str, state: Callable[[PodState], bool], limit_seconds: float, failure: str
) -> None:
    def look(pod: PodState | None) -> bool | None:
        if pod is None:
            raise PodStartError(f"pod {name} was deleted before it ran")
        return True if state(pod) else None

    try:
        async with asyncio.timeout(limit_seconds):
            await watch.until(name, look)
    except TimeoutError as error:
        pod = watch.state(name)
        words = states.words(pod) if pod is not None else "the API server did not show it"
        raise PodStartError(f"pod {name} {failure} within {limit_seconds:.0f} s: {words}") from error
