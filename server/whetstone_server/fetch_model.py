"""The init container that fetches a pod's base model."""

import logging
from pathlib import Path

from whetstone_api.reports import Outcome, TerminationReport
from whetstone_api.source import scheme_of
from whetstone_api.vocabulary import TERMINATION_PATH, Reason
from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.reporting import write_termination
from whetstone_artifacts.sources.credentials import read_credentials
from whetstone_artifacts.sources.fetch import fetch_model, open_place

log = logging.getLogger(__name__)

FIELD = "spec.model.source"


def fetch_base_model(
    uri: str,
    root: Path,
    *,
    digest: str | None,
    secret: Path | None,
    termination: str | Path = TERMINATION_PATH,
) -> int:
    """Fetch a base model, or say in the termination message why not.

    Args:
        uri: The place, pinned.
        root: Volume for models; other pods may share it.
        digest: Content digest that it must have; None where the uri pins the content.
        secret: Folder of the mounted Secret; None for none.
        termination: File for the termination message.

    Returns:
        The exit code. The kubelet starts the container again after a failure, and it goes on where it was.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        folder = fetch_model(open_place(uri, read_credentials(scheme_of(uri), secret)), root, digest)
    except ArtifactError as error:
        reason, message = error.reason, f"{FIELD}.{error.message}"
    except OSError as error:
        reason, message = Reason.POD_FAILED, f"{FIELD}: {uri} could not be written to {root}: {error}"
    else:
        log.info("%s is at %s", uri, folder)
        return 0
    log.error("%s: %s", reason, message)
    write_termination(TerminationReport(outcome=Outcome.RETRY, reason=reason, message=message), termination)
    return 1
