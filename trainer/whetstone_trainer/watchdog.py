"""A training that makes no step says where it stands, before the operator starts it again.

All stacks go to the log, by a thread of faulthandler's that needs no interpreter, so also where native code holds it.
Then this one's thread logs in one line where the main thread is, and leaves the same as the termination message: a hung
process is killed in the end and says nothing any more.
"""

import faulthandler
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from whetstone_api.training_stall import usual_limit

log = logging.getLogger(__name__)

LEAD = 0.9
"""Share of the limit after which the trainer speaks: the operator reads the log when all of it has passed."""
FRAMES = 6
"""Innermost calls of the main thread that are told."""


class Watchdog:
    """Watches the steps of the training in this process.

    Args:
        stall_seconds: Seconds without a step that the user allows; None for the usual limit.
        tell: Takes the words of a training that hangs, and None once it has made a step all the same.
    """

    def __init__(self, stall_seconds: float | None, tell: Callable[[str | None], None]) -> None:
        self._limit = stall_seconds
        self._tell = tell
        self._step = 0
        self._at = 0.0
        self._due: float | None = None
        self._told = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def step(self, number: int, *, seconds_a_step: float = 0.0) -> None:
        """Take note of a step; the first call begins to watch.

        Args:
            number: Steps done.
            seconds_a_step: What a step has taken so far, where known.
        """
        limit = LEAD * (self._limit or usual_limit(seconds_a_step))
        faulthandler.dump_traceback_later(limit, file=sys.__stderr__ or sys.stderr)
        with self._changed:
            self._step, self._at = number, time.monotonic()
            # A moment later, so that the stacks come first and the log ends with the line that sums them up.
            self._due = self._at + limit + min(1.0, 0.05 * limit)
            if self._told:
                self._told = False
                self._tell(None)
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
            self._thread.start()

    def rest(self) -> None:
        """Watch no longer, until the next step."""
        faulthandler.cancel_dump_traceback_later()
        with self._changed:
            self._due = None
            self._changed.notify()

    def _watch(self) -> None:
        with self._changed:
            while True:
                left = None if self._due is None else self._due - time.monotonic()
                if left is not None and left <= 0:
                    self._due, self._told = None, True
                    words = f"no step for {time.monotonic() - self._at:.0f} seconds after step {self._step}; {where()}"
                    self._tell(words)
                    log.error("%s", words)
                else:
                    self._changed.wait(left)


def where() -> str:
    """Return what the main thread is at: its innermost calls, the innermost first."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001 - there is no other way
    calls = traceback.extract_stack(frame)[-FRAMES:] if frame else []
    return "the main thread is at " + " < ".join(
        f"{Path(call.filename).name}:{call.lineno} {call.name}" for call in reversed(calls)
    )
