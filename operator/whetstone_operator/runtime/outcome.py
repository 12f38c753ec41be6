"""How a step ends a reconcile early. A step that returns lets the next one run."""

from whetstone_api.vocabulary import Reason


class Interrupt(Exception):  # noqa: N818 - control flow, not an error
    """Ends the list of steps.

    Args:
        reason: Reason of the conditions that follow from it.
        message: Sentence for people: names the object, the field and the fix.
    """

    def __init__(self, reason: Reason | str, message: str) -> None:
        super().__init__(message)
        self.reason = str(reason)
        self.message = message


class Stalled(Interrupt):
    """Only a change by the user helps. On a run-to-end object: it has failed."""


class Waiting(Interrupt):
    """Something else must happen first; not a failure.

    Args:
        after_seconds: When to look again, for what no watch tells.
    """

    def __init__(self, reason: Reason | str, message: str, after_seconds: float | None = None) -> None:
        super().__init__(reason, message)
        self.after_seconds = after_seconds


class Retry(Interrupt):
    """Something failed that may work next time; tried again with growing pauses."""


class Paused(Interrupt):
    """Nothing to do by the user's own wish: `suspend` on run-to-end kinds, no replicas on a server."""
