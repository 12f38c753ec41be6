"""The one exception of this package: a reason from the closed list, and a sentence for the user."""

from whetstone_api.vocabulary import Reason


class ArtifactError(Exception):
    """Something on disk is not what it should be.

    Args:
        reason: Reason that the condition gets.
        message: Sentence that names the file or field and the fix.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class OutputLockedError(ArtifactError):
    """Another process writes to the same place now; unlike a wrong content, this passes."""
