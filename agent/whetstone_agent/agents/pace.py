"""Whether the server was slow for one trial, by how it answers the run's other calls.

A model that writes much takes long, and that is its own doing. So a call is slow only beside what so many tokens
usually take in this run, and a trial is blamed on the server only where such calls took most of its time.
"""

from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import Final

_CALLS: Final = 512
"""Latest calls that say what is usual."""
_LEAST: Final = 8
"""Calls before anything is."""
FACTOR: Final = 4.0
"""How many times as long as usual a call must take to be slow: batches and long prompts make some difference."""
START_SECONDS: Final = 1.0
"""Time that a call may take before its first token, beside that."""
SHARE: Final = 0.5
"""Share of a trial's time beyond all that, from which on the server is to blame for what the trial did not reach."""


class Pace:
    """How long a token of a reply takes, over the latest calls of a run."""

    def __init__(self) -> None:
        self._rates: deque[float] = deque(maxlen=_CALLS)

    def add(self, seconds: float, tokens: int) -> None:
        """Count an answered call."""
        self._rates.append(seconds / max(1, tokens))

    def slow_after(self, tokens: int) -> float | None:
        """Return the seconds after which a call of so many tokens is slow; None while too few were answered."""
        if len(self._rates) < _LEAST:
            return None
        return START_SECONDS + FACTOR * median(self._rates) * max(1, tokens)


@dataclass(kw_only=True)
class Waiting:
    """How long the calls of one trial took beyond what is usual."""

    excess: float = 0.0
    """Seconds, of answered calls."""
    open_calls: dict[int, tuple[float, int | None]] = field(default_factory=dict)
    """When each unanswered call began, and how many tokens its reply may have; None for no limit."""
    _number: int = 0

    def begin(self, now: float, most_tokens: int | None) -> int:
        """Note a call; return its number."""
        self._number += 1
        self.open_calls[self._number] = (now, most_tokens)
        return self._number

    def end(self, number: int, now: float, *, tokens: int | None, pace: Pace) -> None:
        """Note the end of a call.

        Args:
            number: From `begin`.
            now: The time.
            tokens: Of the reply; None where there was none, as where the trial's time was over before it.
            pace: What is usual; this call counts from now on.
        """
        began, most = self.open_calls.pop(number)
        self.excess += _beyond(now - began, most if tokens is None else tokens, pace)
        if tokens is not None:
            pace.add(now - began, tokens)

    def blames_server(self, now: float, elapsed: float, pace: Pace) -> str | None:
        """Say why what a trial did not reach is the server's doing; None where it is the model's own.

        Args:
            now: The time.
            elapsed: Seconds that the agent has worked.
            pace: What is usual.
        """
        waited = self.excess + sum(_beyond(now - began, most, pace) for began, most in self.open_calls.values())
        if elapsed <= 0 or waited < SHARE * elapsed:
            return None
        return (
            f"{waited:.0f} of {elapsed:.0f} s were spent on calls that took more than {FACTOR:g} times as long as usual"
        )


def _beyond(seconds: float, tokens: int | None, pace: Pace) -> float:
    """Return the seconds beyond what is usual; none for a call whose reply may be of any length."""
    limit = None if tokens is None else pace.slow_after(tokens)
    return 0.0 if limit is None else max(0.0, seconds - limit)
