"""The one exception of this package: a reason from the closed list, and a sentence for the user."""

import errno
from typing import Final

from whetstone_api.vocabulary import Reason

FULL_DISK: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""`errno` of an OSError by which a volume says that it is full."""


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
