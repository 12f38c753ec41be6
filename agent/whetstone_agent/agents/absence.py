"""A model server that is away for a while: a trial that has not begun waits for it, so none is spent on the outage.

A single engine that starts again is away for minutes, far longer than one call is tried. Without this, every trial that
is under way would use up all of its tries on one restart.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

log = logging.getLogger(__name__)

PATIENCE_SECONDS: Final = 900.0
"""Longest wait for one absence: an engine with a large model needs that long to start. Afterwards trials go on as if
the server were there, end void at once, and the run ends without a score."""
_PAUSE_SECONDS: Final = 3.0


class Absence:
    """Knows since when a server has answered no call, and lets trials wait until it is back.

    Args:
        is_back: Asks whether the server would take a call.
        patience_seconds: Longest wait for one absence, however many trials wait for it.
        pause_seconds: Between two questions.
    """

    def __init__(
        self,
        is_back: Callable[[], Awaitable[bool]],
        *,
        patience_seconds: float = PATIENCE_SECONDS,
        pause_seconds: float = _PAUSE_SECONDS,
    ) -> None:
        self._is_back = is_back
        self._patience = patience_seconds
        self._pause = pause_seconds
        self._since: float | None = None
        self._told = False

    def begin(self) -> None:
        """A call has failed for good; the first one since the last answer begins the absence."""
        if self._since is None:
            self._since, self._told = asyncio.get_running_loop().time(), False

    def end(self) -> None:
        """A call was answered."""
        self._since = None

    async def over(self) -> None:
        """Wait until the server is back or patience is over; at once where no call has failed since the last answer."""
        clock = asyncio.get_running_loop().time
        while (since := self._since) is not None and clock() < since + self._patience:
            if await self._is_back():
                if self._told:
                    self._told = False
                    log.info("the model server is back after %.0f s", clock() - since)
                return
            if not self._told:
                self._told = True
                log.warning("the model server is away; trials wait for it, at most %.0f s", self._patience)
            await asyncio.sleep(self._pause)
