"""How a run ends without a result."""

from pathlib import Path

from whetstone_api.reports import Outcome
from whetstone_api.vocabulary import Reason
from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.tasks.sets import check_folder


class RunFailure(Exception):  # noqa: N818 - an outcome, not a defect
    """The run cannot go on.

    Args:
        reason: Reason that the object's condition gets.
        message: Sentence that names the object, the field and the fix.
        outcome: `FAILED` where only the user can help, `RETRY` where trying again can.
    """

    def __init__(self, reason: Reason, message: str, *, outcome: Outcome = Outcome.FAILED) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.outcome = outcome


def hold_to_digest(folder: Path, digest: str, where: str) -> None:
    """Hold a folder of a claim to the digest that the spec names; what was fetched has been held to it already.

    Args:
        folder: The folder.
        digest: `sha256:…` of its content.
        where: The field, with what it says.

    Raises:
        RunFailure: `DIGEST_MISMATCH`.
    """
    try:
        check_folder(folder, digest)
    except ArtifactError as error:
        raise RunFailure(error.reason, f"{where}: {error.message}") from error


def budget_exceeded(told: str) -> RunFailure:
    """Return the end of a run whose trials have used up what all of them may."""
    kept = "finished trials are kept: create the run again with a larger budget and the same output to go on"
    return RunFailure(Reason.BUDGET_EXCEEDED, f"{told}; {kept}")


def target_changed(told: str) -> RunFailure:
    """Return the end of a run whose server serves another version than at its start, or none."""
    message = f"{told}; no result is published: start the run again when the server is settled"
    return RunFailure(Reason.TARGET_CHANGED, message)
