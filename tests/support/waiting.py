"""Waiting for what a test observes, with deadlines that grow with the machine's slowness."""

import os
import time
from collections.abc import Callable, Sized
from functools import cache
from typing import TypeVar

T = TypeVar("T")
DEADLINE_SECONDS = 30.0
"""On a machine of factor 1."""
_REFERENCE_SECONDS = 0.05
_PAUSE_SECONDS = 0.05


@cache
def machine_factor() -> float:
    """Return how much slower than the reference this machine is now, at least 1, at most 10: measured once."""
    return _measured_factor()


def _measured_factor() -> float:
    fixed = os.environ.get("WHETSTONE_MACHINE_FACTOR")
    if fixed:
        return float(fixed)
    start = time.perf_counter()
    sum(number * number for number in range(1_000_000))
    return min(10.0, max(1.0, (time.perf_counter() - start) / _REFERENCE_SECONDS))


def eventually[T](probe: Callable[[], T | None], *, what: str, seconds: float = DEADLINE_SECONDS) -> T:
    """Return the first truthy answer of `probe`.

    Args:
        probe: Looks at the world; an `AssertionError` counts as "not yet".
        what: What is waited for, for the message.
        seconds: Deadline on a machine of factor 1. One that has become busier since it was measured gets more.

    Raises:
        AssertionError: The deadline passed; carries what the probe said last.
    """
    begin, factor = time.monotonic(), machine_factor()
    while True:
        try:
            answer = probe()
            last = f"last answer {answer!r}"
        except AssertionError as error:
            answer, last = None, str(error)
        if answer:
            return answer
        if time.monotonic() > begin + seconds * factor:
            before, factor = factor, _measured_factor()
            if factor <= before:
                raise AssertionError(f"not within {seconds * before:.0f} s: {what}; {last}")
        _pause()


def eventually_none(probe: Callable[[], Sized], *, what: str, seconds: float = DEADLINE_SECONDS) -> None:
    """Wait until `probe` finds nothing any more.

    Args:
        probe: Returns what is still there.
        what: What is waited for, for the message.
        seconds: As for `eventually`.

    Raises:
        AssertionError: The deadline passed; names what was there last.
    """

    def none() -> bool:
        left = probe()
        assert not left, f"still there: {left}"
        return True

    eventually(none, what=what, seconds=seconds)


def _pause() -> None:
    time.sleep(_PAUSE_SECONDS)
