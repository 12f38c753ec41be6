"""How often a server's desired state is made newer than what one of its pods says that it holds.

A ConfigMap that was made anew after a clock had been set back is older than what pods hold, and leaps ahead of them
once. A pod that always says a higher number would have it written for ever: the pause between two leaps grows.
"""

import logging
from typing import Final

from whetstone_operator.kinds import Key
from whetstone_operator.runtime.clock import Clock
from whetstone_operator.runtime.queue import Backoff

logger = logging.getLogger(__name__)
LONGEST_PAUSE_SECONDS: Final = 600.0
CALM_SECONDS: Final = 2 * LONGEST_PAUSE_SECONDS
"""Who has not leapt for so long may do so at once again."""
_BACKOFF: Final = Backoff(first=5.0, longest=LONGEST_PAUSE_SECONDS, jitter=0.0)


class Leaps:
    """The latest leap of each server, and how many there were in a row.

    Only in memory: after a restart each may leap once.

    Args:
        clock: Measures the pauses, by steady time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._latest: dict[Key, tuple[float, int]] = {}

    def take(self, key: Key) -> float:
        """Return the seconds until a server may leap; with 0 it does so now."""
        now = self._clock.steady()
        at, leaps = self._latest.get(key, (now - CALM_SECONDS, 0))
        if now - at >= CALM_SECONDS:
            leaps = 0
        elif (left := at + _BACKOFF.pause(leaps) - now) > 0:
            return left
        else:
            after = _BACKOFF.pause(leaps + 1)
            logger.warning("%s: a pod says that it holds a newer state than there is; next look in %g s", key, after)
        self._latest[key] = now, leaps + 1
        return 0.0

    def forget(self, key: Key) -> None:
        """Forget a server that is gone."""
        self._latest.pop(key, None)
