"""`python -m whetstone_agent.fetching --config PATH`: brings tasks and the like before the runner starts.

Every pod of a run fetches for itself. What the first one found is recorded on the volume of the results, so that the
others, and those that come after it, take the same or end with the reason.
"""

import argparse
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from pydantic import ValidationError
from whetstone_api.jobs import EXIT_STOPPED, EXIT_USER_ERROR, FetchedContent, FetchedFolder, RunConfig
from whetstone_api.reports import FETCHING, Outcome, ProgressReport, TerminationReport
from whetstone_api.run_artifact import FetchRecord
from whetstone_api.source import scheme_of
from whetstone_api.vocabulary import CONFIG_PATH, TERMINATION_PATH, Reason
from whetstone_artifacts.errors import ArtifactError, OutputLockedError
from whetstone_artifacts.lock import output_lock
from whetstone_artifacts.replacing import replacing
from whetstone_artifacts.reporting import Reporter, write_termination
from whetstone_artifacts.sources.credentials import Credentials, read_credentials
from whetstone_artifacts.sources.download import Progress
from whetstone_artifacts.tasks.sets import (
    check_folder,
    check_task_set,
    fetch_folder,
    folder_digest,
    resolve_place,
    unpack_folder,
)

from whetstone_agent.shards import Shard

log = logging.getLogger("whetstone_agent")

EXIT_RETRY: Final = 1
_PASSING: Final = frozenset({Reason.SOURCE_UNREACHABLE, Reason.DISK_FULL})
"""Reasons that another try may not meet."""
_RECORD_SECONDS: Final = 120.0
"""How long a pod waits for another one that asks a hub for its commit, or writes what it found."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch what a run's configuration names; return 0, `EXIT_USER_ERROR`, or `EXIT_RETRY`."""
    parser = argparse.ArgumentParser(prog="whetstone_agent.fetching", description="Fetch what a benchmark needs.")
    parser.add_argument("--config", type=Path, default=Path(CONFIG_PATH), help=f"default: {CONFIG_PATH}")
    parser.add_argument(
        "--termination", type=Path, default=Path(TERMINATION_PATH), help=f"where a failure is told; {TERMINATION_PATH}"
    )
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    signal.signal(signal.SIGTERM, _stopper(options.termination))
    report = _fetch_all(options.config)
    if report is None:
        return 0
    write_termination(report, options.termination)
    log.info("%s %s: %s", report.outcome, report.reason, report.message)
    return EXIT_USER_ERROR if report.outcome is Outcome.FAILED else EXIT_RETRY


def _stopper(termination: Path) -> Callable[..., None]:
    def stop(*_: object) -> None:
        message = "the pod was stopped while it fetched; the next try begins anew"
        write_termination(TerminationReport(outcome=Outcome.RETRY, reason=Reason.RUNNING, message=message), termination)
        # Threads that wait for a server would keep the process; what they have fetched goes with the pod anyway.
        os._exit(EXIT_STOPPED)

    return stop


def _fetch_all(path: Path) -> TerminationReport | None:
    try:
        config = RunConfig.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        message = f"the runner's configuration {path} cannot be read: {error}"
        return TerminationReport(outcome=Outcome.FAILED, reason=Reason.INVALID_SPEC, message=message)
    reporter = Reporter(url=config.report_url)
    try:
        return _bring_all(config, reporter)
    finally:
        reporter.close()


def _bring_all(config: RunConfig, reporter: Reporter) -> TerminationReport | None:
    for wanted in config.fetched:
        try:
            bring(wanted, progress=teller(config, wanted, reporter))
        except ArtifactError as error:
            passing = isinstance(error, OutputLockedError) or error.reason in _PASSING
            outcome = Outcome.RETRY if passing else Outcome.FAILED
            return TerminationReport(outcome=outcome, reason=error.reason, message=f"{wanted.field}: {error.message}")
        except Exception as error:
            log.exception("%s cannot be fetched", wanted.field)
            message = f"{wanted.field}: {type(error).__name__}: {error}"
            return TerminationReport(outcome=Outcome.RETRY, reason=Reason.INTERNAL_ERROR, message=message)
    return None


def teller(config: RunConfig, wanted: FetchedFolder, reporter: Reporter) -> Progress:
    """Return what tells the operator how much of a folder is there.

    Of several pods only the first one tells, and that only until one of them has the folder: then they may be at work,
    and their count of trials is what the object shows.

    Args:
        config: The run.
        wanted: The folder.
        reporter: Sends what is told.
    """
    first = Shard.of(config).index == 0

    def tell(done: int, total: int) -> None:
        record = _read(Path(wanted.record_path)) if config.shards > 1 else None
        if first and (record is None or record.digest is None):
            known = {"fetched_bytes": done, "total_bytes": total} if total else {}
            reporter.send(ProgressReport(phase=FETCHING, **known))

    return tell


def bring(wanted: FetchedFolder, *, progress: Progress = lambda _done, _total: None) -> None:
    """Fetch one folder, and hold it to its digest and to what other pods of the attempt have fetched.

    Args:
        wanted: What to fetch, and where to.
        progress: Told while it is fetched.

    Raises:
        ArtifactError: As `fetch_folder` and `check_task_set`; `DIGEST_MISMATCH` for a place whose content has changed
            since the first pod fetched it.
    """
    target = Path(wanted.path)
    if target.exists():
        return
    progress(0, 0)
    if wanted.uri is None:
        resolved = wanted.archive_path or ""
        unpack_folder(Path(resolved), target)
    else:
        scheme = scheme_of(wanted.uri)
        credentials = read_credentials(scheme, Path(wanted.secret_path) if wanted.secret_path else None)
        resolved = _resolved(wanted, wanted.uri, credentials)
        log.info("fetching %s", resolved)
        fetch_folder(resolved, credentials, target, progress=progress)
    if wanted.what is FetchedContent.TASKS:
        check_task_set(target, wanted.digest, "what is there")
        found = folder_digest(target)
    else:
        found = check_folder(target, wanted.digest)
    _hold_to_record(Path(wanted.record_path), FetchRecord(uri=wanted.uri or resolved, resolved=resolved, digest=found))
    log.info("%s is at %s, %s", wanted.field, target, found)


def _resolved(wanted: FetchedFolder, uri: str, credentials: Credentials) -> str:
    """Return the place with its commit: the one that the attempt's first pod found."""
    path = Path(wanted.record_path)
    with output_lock(path, wait_seconds=_RECORD_SECONDS):
        record = _read(path)
        if record is None:
            record = FetchRecord(uri=uri, resolved=resolve_place(uri, credentials))
            _write(path, record)
        return record.resolved


def _hold_to_record(path: Path, found: FetchRecord) -> None:
    with output_lock(path, wait_seconds=_RECORD_SECONDS):
        record = _read(path)
        if record is None or record.digest is None:
            _write(path, found)
        elif record.digest != found.digest:
            raise ArtifactError(
                Reason.DIGEST_MISMATCH,
                f"the place holds other files ({found.digest}) than when this run first fetched them"
                f" ({record.digest}); put the old ones back, or start over with the new ones by the annotation"
                " whetstone.dev/retry-requested-at or in a new object",
            )


def _read(path: Path) -> FetchRecord | None:
    return FetchRecord.model_validate_json(path.read_bytes()) if path.is_file() else None


def _write(path: Path, record: FetchRecord) -> None:
    with replacing(path) as temporary:
        temporary.write_text(record.to_json())


if __name__ == "__main__":
    sys.exit(main())
