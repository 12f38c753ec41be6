"""An engine that generates nothing any more, as the sidecar has found: its health check must fail.

The engine's own check says 200 as long as its process has not ended, so nothing else would start it anew.
"""

import time
from collections.abc import Callable

from .asgi import Refused

LONGEST_SECONDS = 300.0
"""Longest time that a finding holds without being repeated, should the sidecar die."""


class Stall:
    """Whether the engine counts as stalled.

    Args:
        clock: Gives monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until = float("-inf")

    def hold(self, seconds: float) -> None:
        """Count the engine as stalled for so long from now on; 0 takes it back."""
        self._until = self._clock() + min(seconds, LONGEST_SECONDS) if seconds else float("-inf")

    def check(self) -> None:
        """Answer a health check.

        Raises:
            Refused: 503 while the engine is stalled.
        """
        if self._clock() < self._until:
            raise Refused(503, "the engine takes requests and generates nothing", code="engine_stalled")
