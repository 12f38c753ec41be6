"""The paired comparison of a run with its baseline."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError
from whetstone_api.benchmark_result import RunComparison, Verdict
from whetstone_api.reports import Outcome
from whetstone_api.run_artifact import RESULTS_FILE, Comparability, RunArtifact, TaskScore
from whetstone_api.vocabulary import Reason

from whetstone_agent.failure import RunFailure
from whetstone_agent.scoring import decimal, task_means, wire_interval
from whetstone_agent.statistics import CONFIDENCE, PairedDifference, compare_paired

_NAMES = {
    "suite_digest": "the tasks (spec.suite)",
    "agent": "the agent (spec.agent)",
    "sampling": "the sampling (spec.sampling)",
    "attempts": "spec.attempts",
    "harness": "the harness",
    "images": "the images (spec.suite.harbor.images.map)",
}


def read_baseline(folder: Path, name: str) -> RunArtifact:
    """Read the results of the baseline.

    Args:
        folder: Its output folder.
        name: Name of its BenchmarkRun, for messages.

    Raises:
        RunFailure: `REFERENCE_NOT_READY`, to be tried again, when there is no result yet; `REFERENCE_FAILED` when the
            file cannot be read.
    """
    path = folder / RESULTS_FILE
    try:
        return RunArtifact.model_validate_json(path.read_bytes())
    except FileNotFoundError as error:
        message = f"spec.baselineRef: BenchmarkRun {name!r} has no result at {path} yet; it is waited for"
        raise RunFailure(Reason.REFERENCE_NOT_READY, message, outcome=Outcome.RETRY) from error
    except ValidationError as error:
        message = f"spec.baselineRef: {path} of BenchmarkRun {name!r} cannot be read; run the baseline again"
        raise RunFailure(Reason.REFERENCE_FAILED, message) from error


def compare(
    *, scores: Sequence[TaskScore], measured: Comparability, baseline: RunArtifact, baseline_name: str
) -> RunComparison:
    """Compare a run with its baseline, task by task.

    Only tasks with a scored trial on both sides are paired. A verdict other than Inconclusive is given only where the
    interval of the difference excludes 0.
    """
    difference = differing(measured, baseline.comparability)
    if difference is not None:
        return RunComparison(baseline=baseline_name, verdict=Verdict.NOT_COMPARABLE, message=difference)
    paired = _pair(task_means(scores), task_means(baseline.tasks))
    if paired is None:
        message = f"no task was scored both here and in BenchmarkRun {baseline_name!r}; look at the void trials"
        return RunComparison(baseline=baseline_name, verdict=Verdict.NOT_COMPARABLE, message=message)
    return RunComparison(
        baseline=baseline_name,
        verdict=verdict(paired),
        difference=decimal(paired.difference),
        interval=wire_interval(paired.interval),
        wins=paired.wins,
        losses=paired.losses,
        ties=paired.ties,
        minimum_detectable=None if paired.minimum_detectable is None else decimal(paired.minimum_detectable),
    )


def verdict(paired: PairedDifference) -> Verdict:
    """Return the verdict: a difference is claimed only where the interval excludes 0."""
    if not paired.interval.excludes(0.0):
        return Verdict.INCONCLUSIVE
    return Verdict.BETTER if paired.difference > 0 else Verdict.WORSE


def differing(measured: Comparability, baseline: Comparability) -> str | None:
    """Say what makes two runs incomparable; None when nothing does."""
    parts = []
    for field, name in _NAMES.items():
        here, there = getattr(measured, field), getattr(baseline, field)
        if here != there:
            parts.append(f"{name}: {_short(here)} here, {_short(there)} in the baseline")
    if not parts:
        return None
    return f"run and baseline differ in {'; '.join(parts)}; give both runs the same values"


def _pair(here: dict[str, float], there: dict[str, float]) -> PairedDifference | None:
    names = [name for name in here if name in there]
    return compare_paired([here[name] for name in names], [there[name] for name in names], CONFIDENCE)


def _short(value: object) -> str:
    text = str(value)
    return text[: len("sha256:") + 8] if text.startswith("sha256:") else text
