"""Wait for a pod: as long as a queue may take for a node, and then for its container."""

import asyncio
from collections.abc import Callable

from whetstone_agent.environment import states
from whetstone_agent.environment.errors import PodStartError
from whetstone_agent.environment.watching import PodState, PodWatch


async def wait_until_running(
    watch: PodWatch, name: str, container: str, *, queue_seconds: float, start_seconds: float
) -> None:
    """Wait until a container of a pod runs.

    Args:
        watch: Sees the pod.
        name: The pod.
        container: Its container.
        queue_seconds: How long it may wait for a node.
        start_seconds: How long it may take from there to running.

    Raises:
        PodStartError: One of both took too long, or cannot come.
    """
    await _reach(watch, name, states.is_scheduled, queue_seconds, "found no node")
    await _reach(watch, name, lambda pod: states.is_running(pod, container), start_seconds, "did not run on its node")


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
