"""The results of the baseline, that a run is compared with."""

from pathlib import Path

from pydantic import ValidationError
from whetstone_api.jobs import RunConfig
from whetstone_api.reports import Outcome
from whetstone_api.run_artifact import RESULTS_FILE, RunArtifact
from whetstone_api.vocabulary import Reason

from whetstone_agent.failure import RunFailure


def read_baseline(config: RunConfig) -> RunArtifact | None:
    """Return the results of the baseline; None for a run that is compared with nothing.

    Raises:
        RunFailure: `REFERENCE_NOT_READY`, to be tried again, when there is no result yet; `REFERENCE_FAILED` when the
            file cannot be read.
    """
    if config.baseline_path is None:
        return None
    path, name = Path(config.baseline_path) / RESULTS_FILE, config.baseline_name or config.baseline_path
    try:
        baseline = RunArtifact.model_validate_json(path.read_bytes())
    except FileNotFoundError as error:
        message = f"spec.baselineRef: BenchmarkRun {name!r} has no result at {path} yet; it is waited for"
        raise RunFailure(Reason.REFERENCE_NOT_READY, message, outcome=Outcome.RETRY) from error
    except ValidationError as error:
        message = f"spec.baselineRef: {path} of BenchmarkRun {name!r} cannot be read; run the baseline again"
        raise RunFailure(Reason.REFERENCE_FAILED, message) from error
    if config.baseline_invalid is None:
        return baseline
    return baseline.model_copy(update={"invalid": config.baseline_invalid or None})
