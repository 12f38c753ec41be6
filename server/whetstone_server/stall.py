"""Does the engine still generate? Its health check says 200 as long as its process has not ended.

Not how long an answer takes is judged, which on a busy engine may be minutes, but whether anything moves: the engine's
own series of tokens, requests and cache change with every step that it takes. While nothing has moved for a while, a
request for one token makes sure that something must. If it waits, and still nothing moves, the engine has stalled.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from whetstone_server.engine import Engine, EngineRefusedError, EngineUnreachableError
from whetstone_server.settings import Settings

log = logging.getLogger(__name__)


class StallWatch:
    """Watches one engine for progress.

    Args:
        engine: The engine.
        settings: Settings of the sidecar.
        done: Called when the verdict has changed.
    """

    def __init__(self, *, engine: Engine, settings: Settings, done: Callable[[], None]) -> None:
        self._engine = engine
        self._settings = settings
        self._done = done
        self._task: asyncio.Task[None] | None = None
        self.forget_engine()

    def forget_engine(self) -> None:
        """Drop what was true of an engine that is gone."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self.stalled = False
        self._series: tuple[str, ...] | None = None
        self._moved = time.monotonic()
        self._looked = float("-inf")

    async def look(self, base_name: str) -> None:
        """Look at the engine's series, ask for a token where they stand still, and tell the guard the verdict.

        Args:
            base_name: Served name of the base model.

        Raises:
            EngineUnreachableError, EngineRefusedError: The engine's API does not answer.
        """
        now = time.monotonic()
        if now - self._looked < self._settings.stall_look_seconds:
            return
        self._looked = now
        series = await self._engine.progress()
        # An engine that is told to keep no series cannot be judged.
        if series != self._series or not series:
            self._series, self._moved = series, now
        still = now - self._moved
        if still >= self._settings.stall_ask_seconds and self._task is None:
            self._task = asyncio.create_task(self._ask(base_name))
        asked = self._engine.asked_at
        stalled = asked is not None and now - max(asked, self._moved) >= self._settings.stall_seconds
        if stalled or self.stalled:
            await self._engine.set_stalled(4 * self._settings.stall_look_seconds if stalled else 0)
        if stalled != self.stalled:
            log.error("the engine has done nothing for %.0f s" if stalled else "the engine moves again (%.0f s)", still)
            self.stalled = stalled
            self._done()

    async def stop(self) -> None:
        """Cancel what is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _ask(self, base_name: str) -> None:
        try:
            await self._engine.one_token(base_name)
        except EngineUnreachableError as error:
            log.info("a token was asked for in vain: %s", error)
        except EngineRefusedError as error:
            # An answer, too: the engine is not asked again at once.
            self._moved = time.monotonic()
            log.info("the engine gives no token: %s", error)
        finally:
            if self._task is asyncio.current_task():
                self._task = None
