"""SIGTERM: at once outside the training loop, after the current step and a checkpoint inside of it."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from whetstone_trainer.errors import StoppedError


class StopSignal:
    """Turns SIGTERM into `StoppedError`, or into a flag while `deferred`."""

    def __init__(self) -> None:
        self.requested = False
        """SIGTERM has come."""
        self._deferred = False

    def install(self) -> None:
        """Handle SIGTERM from now on. Only the main thread may call this."""
        signal.signal(signal.SIGTERM, self._handle)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Within this block only set the flag: the training loop asks for it after each step."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self.requested = True
        if not self._deferred:
            raise StoppedError("stopped by SIGTERM; the next attempt continues from what is saved")
