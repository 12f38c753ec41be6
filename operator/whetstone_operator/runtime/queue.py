"""A keyed work queue: equal keys merge, no key is worked on twice at a time, failures come back with growing pauses."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass

from whetstone_operator.metrics import QUEUE_DEPTH, QUEUE_RETRIES, QUEUE_SECONDS

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a reconcile wants to go on.

    Args:
        requeue_after: Seconds until the key is due again; None: only when something changes.
        failed: Come back after a growing pause instead.
    """

    requeue_after: float | None = None
    failed: bool = False


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """Growing pauses: `first` · 2ⁿ up to `longest` seconds, each spread by up to `jitter` of itself."""

    first: float = 1.0
    longest: float = 300.0
    jitter: float = 0.1

    def pause(self, failures: int) -> float:
        """Return the seconds to wait after so many failures in a row."""
        base = min(self.longest, self.first * 2.0 ** min(failures - 1, 32))
        return base * (1 + self.jitter * random.random())  # noqa: S311 - spreads load, guards nothing


class WorkQueue[K: Hashable]:
    """Runs `process(key)` for every key that is due.

    Args:
        process: The work on one key; an exception counts as a failure.
        workers: Keys worked on at a time.
        backoff: Pauses after failures.
    """

    def __init__(
        self, process: Callable[[K], Awaitable[Result]], *, workers: int, backoff: Backoff | None = None
    ) -> None:
        self._process = process
        self._workers = workers
        self._backoff = backoff or Backoff()
        self._ready: asyncio.Queue[K] = asyncio.Queue()
        self._since: dict[K, float] = {}
        self._running: set[K] = set()
        self._again: set[K] = set()
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.finished = 0
        """Keys worked on since the start."""

    def add(self, key: K, after: float = 0.0) -> None:
        """Make a key due, now or after some seconds; of several delays the shortest counts."""
        if after > 0:
            self._delay(key, after)
            return
        if key in self._running:
            self._again.add(key)
        elif key not in self._since:
            self._since[key] = asyncio.get_running_loop().time()
            self._ready.put_nowait(key)
            QUEUE_DEPTH.set(self._ready.qsize())

    def start(self) -> None:
        """Start the workers."""
        self._tasks = [asyncio.create_task(self._work(), name=f"worker-{n}") for n in range(self._workers)]

    async def stop(self) -> None:
        """Stop the workers; a reconcile under way is cancelled, which is safe: it is repeated after the restart."""
        for timer in self._timers.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def idle(self) -> bool:
        """Whether nothing is due or being worked on."""
        return self._ready.empty() and not self._running

    @property
    def stuck(self) -> bool:
        """Whether a worker has died, which must not happen."""
        return any(task.done() for task in self._tasks)

    def _delay(self, key: K, after: float) -> None:
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= loop.time() + after:
                return
            timer.cancel()
        self._timers[key] = loop.call_later(after, self._due, key)

    def _due(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)

    async def _work(self) -> None:
        while True:
            key = await self._ready.get()
            self._running.add(key)
            QUEUE_DEPTH.set(self._ready.qsize())
            QUEUE_SECONDS.observe(asyncio.get_running_loop().time() - self._since.pop(key))
            timer = self._timers.pop(key, None)
            if timer is not None:
                timer.cancel()
            try:
                result = await self._run(key)
            finally:
                self._running.discard(key)
            self._finish(key, result)

    async def _run(self, key: K) -> Result:
        try:
            return await self._process(key)
        except Exception:
            logger.exception("reconcile of %s failed", key)
            return Result(failed=True)

    def _finish(self, key: K, result: Result) -> None:
        self.finished += 1
        if result.failed:
            self._failures[key] = self._failures.get(key, 0) + 1
            QUEUE_RETRIES.inc()
            self._delay(key, self._backoff.pause(self._failures[key]))
        else:
            self._failures.pop(key, None)
            if result.requeue_after is not None:
                self._delay(key, max(result.requeue_after, 0.01))
        if key in self._again:
            self._again.discard(key)
            self.add(key)
