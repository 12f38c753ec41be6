"""The end of a pod's service: clients on kept-alive connections must turn to other pods before the engine ends.

Endpoints forget a pod that is going, but that closes no connection: a client would go on using the one it has until the
engine ends, and lose the request that it sends at that moment.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .asgi import Message, Send, replace_headers


class Drain:
    """Whether the pod is going, and for how long nobody has been served.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._active = 0
        self._quiet_since = clock()
        self._begun = False

    def begin(self) -> None:
        """Close each connection with its next answer, for good: a pod that is told to go never comes back."""
        self._begun = True

    def wrap(self, send: Send) -> Send:
        """Return a `send` whose answer, should it start while the pod is going, is the last on its connection."""

        async def closing(message: Message) -> None:
            if self._begun and message["type"] == "http.response.start":
                message = {**message, "headers": replace_headers(message.get("headers", ()), connection=b"close")}
            await send(message)

        return closing

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Count one client's request while it is answered."""
        self._active += 1
        try:
            yield
        finally:
            self._active -= 1
            self._quiet_since = self._clock()

    def quiet_seconds(self) -> float:
        """Return the time since the last answer ended, 0 while one is under way."""
        return 0.0 if self._active else self._clock() - self._quiet_since
