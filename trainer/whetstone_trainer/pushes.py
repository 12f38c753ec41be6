"""Push: copies of the published adapter and merged model at the places that the spec names."""

import logging
from pathlib import Path

from whetstone_api.jobs import TrainingConfig
from whetstone_api.reports import Outcome
from whetstone_api.source import scheme_of
from whetstone_api.training_push import PushResult, PushTarget, PushWhat
from whetstone_api.vocabulary import Reason
from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.sources.credentials import read_credentials
from whetstone_artifacts.sources.parcel import Parcel, Pushed, read_parcel
from whetstone_artifacts.sources.push import open_destination

from whetstone_trainer.errors import NoRoomError, outcome_of
from whetstone_trainer.hub import reaching
from whetstone_trainer.room import naming_a_full_disk

log = logging.getLogger(__name__)


def push_all(config: TrainingConfig) -> tuple[list[PushResult], ArtifactError | None]:
    """Push to every place and return what lies there; one that fails does not keep the others from it.

    Args:
        config: The job's configuration; adapter and merged model are published.

    Returns:
        The pushes that are done; and where some failed, the error of the first one for which trying again would change
        nothing, else of the first.
    """
    parcels: dict[PushWhat, Parcel] = {}
    done: list[PushResult] = []
    failed: list[ArtifactError] = []
    for number, target in enumerate(config.pushes):
        try:
            if target.what not in parcels:
                parcels[target.what] = read_parcel(_folder(config, target.what))
            pushed = _push(target, parcels[target.what])
        except (ArtifactError, NoRoomError) as error:
            reason = error.reason if isinstance(error, ArtifactError) else Reason.DISK_FULL
            message = f"spec.output.push[{number}] ({target.name}): {error}"
            log.warning("%s", message)
            failed.append(ArtifactError(reason, message))
            continue
        log.info("%s %s", "found" if pushed.found else "pushed", pushed.uri)
        done.append(PushResult(name=target.name, uri=pushed.uri, digest=pushed.digest))
    return done, min(failed, key=lambda error: outcome_of(error.reason) is Outcome.RETRY, default=None)


def _folder(config: TrainingConfig, what: PushWhat) -> Path:
    return Path(config.output_path if what is PushWhat.ADAPTER else config.merged_path or "")


def _push(target: PushTarget, parcel: Parcel) -> Pushed:
    scheme = scheme_of(target.uri)
    keys = read_credentials(scheme, Path(target.secret_path) if target.secret_path else None)
    folder = Path(target.path) if target.path else None
    fix = "make room in its claim: the next attempt goes on with it, and nothing is trained again"
    with reaching(scheme), naming_a_full_disk("a copy", folder or Path(target.uri), fix):
        return open_destination(target.uri, keys, folder=folder).push(parcel)
