"""Moments in which the engine does one thing alone: clients' requests wait, and none is refused for it.

vLLM's LoRA kernels for CPUs take one row a request when they compute the logits of a prompt: a request for prompt
log-probabilities that meets another one in its batch ends the engine (seen with vLLM 0.32; GPU kernels take it).
"""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

from .asgi import Refused

LONGEST_SECONDS = 60.0
"""Longest hold, should the one who asked for it never end it."""


class Quiet:
    """Holds clients' requests back.

    Args:
        needed: Whether this engine needs such moments.
    """

    def __init__(self, *, needed: bool) -> None:
        self.needed = needed
        self._until = 0.0
        self._alone = 0
        self._changed = asyncio.Event()

    def hold(self, seconds: float) -> None:
        """Hold new requests back for so long from now on; 0 lets them go on at once."""
        self._until = time.monotonic() + min(seconds, LONGEST_SECONDS)
        self._changed.set()

    @contextmanager
    def alone(self, in_flight: int) -> Iterator[None]:
        """Let a request meet no other: until its end new ones wait, however long the hold was for that it began in.

        Args:
            in_flight: Requests of clients that are being answered.

        Raises:
            Refused: 409 when the engine needs a hold and there is none any more.
        """
        if not self.needed:
            yield
            return
        if in_flight or time.monotonic() >= self._until:
            raise Refused(409, "clients are not held back any more; hold them again", code="hold_over")
        self._alone += 1
        try:
            yield
        finally:
            self._alone -= 1
            self._changed.set()

    async def wait(self) -> None:
        """Return once requests may go on."""
        while self._alone or time.monotonic() < self._until:
            self._changed.clear()
            try:
                async with asyncio.timeout(None if self._alone else self._until - time.monotonic()):
                    await self._changed.wait()
            except TimeoutError:
                continue


def mixes_prompt_logprobs() -> bool:
    """Return whether this process's engine takes a request for prompt log-probabilities beside others."""
    try:
        from vllm.platforms import current_platform
    except ImportError:
        return True
    return not current_platform.is_cpu()


def read_hold(body: bytes) -> float:
    """Return the seconds of a request to hold.

    Raises:
        Refused: 400 when it names none.
    """
    try:
        seconds = float(json.loads(body)["seconds"])
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(400, 'the body must be {"seconds": number}', code="invalid_hold") from error
    if not seconds >= 0:
        raise Refused(400, "seconds must not be below 0", code="invalid_hold")
    return seconds
