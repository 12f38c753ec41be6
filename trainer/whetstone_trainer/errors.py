"""How a training program ends early: for good, because the input is wrong, or to be started again."""

from whetstone_api.reports import Outcome
from whetstone_api.vocabulary import Reason

PASSING = frozenset({Reason.SOURCE_UNREACHABLE, Reason.DISK_FULL})
"""Reasons that may be gone when another pod tries."""


def outcome_of(reason: Reason) -> Outcome:
    """Return how a program ends that something kept from its result: for good, or to be started again."""
    return Outcome.RETRY if reason in PASSING else Outcome.FAILED


class UserError(Exception):
    """The input is wrong and trying again changes nothing.

    Args:
        reason: Reason that the condition gets.
        message: Sentence that names the object, the field and the fix.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message

    def __reduce__(self) -> tuple[type["UserError"], tuple[Reason, str]]:
        """Let one process tell another."""
        return UserError, (self.reason, self.message)


class StoppedError(Exception):
    """SIGTERM ended the program before its result; what is saved is continued by the next attempt."""


class NoRoomError(Exception):
    """A volume is full; what was saved before is whole, and the next attempt continues from it."""


class WorkerLostError(Exception):
    """A process that helped was killed from outside, which only another attempt can do without."""
