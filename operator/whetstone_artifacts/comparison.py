"""The paired comparison of two runs."""

from collections.abc import Iterator, Mapping, Sequence

from whetstone_api.benchmark_result import Interval, RunComparison, Verdict
from whetstone_api.run_artifact import Comparability, RunArtifact, TaskScore

from whetstone_artifacts.figures import CONFIDENCES, decimal, mean_attempts, task_means, wire_interval
from whetstone_artifacts.statistics import CONFIDENCE, PairedDifference, compare_paired

_NAMES = {
    "suite_digest": "the tasks (spec.suite)",
    "agent": "the agent (spec.agent)",
    "sampling": "the sampling (spec.sampling)",
    "attempts": "spec.attempts",
    "harness": "the harness",
    "images": "the images (spec.suite.harbor.images.map)",
}

_TOOL_USE_NAMES = {
    "environment": "the environment (spec.suite.toolUse.environment)",
    "steps": "horizon, repeatedActions or observationCharacters (spec.suite.toolUse)",
    "tools": "the tools (spec.suite.toolUse.tools)",
    "protocol": "spec.suite.toolUse.protocol",
    "scorer": "the scorer (spec.suite.toolUse.scorer)",
    "overseer": "the overseer (spec.suite.toolUse.overseer)",
    "expert": "the expert (spec.suite.toolUse.expert)",
}


def compare(
    *, scores: Sequence[TaskScore], measured: Comparability, baseline: RunArtifact, baseline_name: str
) -> RunComparison:
    """Compare a run with its baseline, task by task.

    Only tasks with a scored trial on both sides are paired. A verdict other than Inconclusive is given only where the
    interval of the difference excludes 0.

    Args:
        scores: Tasks and trials of the run.
        measured: What must be equal for a comparison.
        baseline: The other run.
        baseline_name: Its name, for people.
    """
    difference = _spoiled(baseline) or differing(measured, baseline.comparability)
    if difference is not None:
        return RunComparison(baseline=baseline_name, verdict=Verdict.NOT_COMPARABLE, message=difference)
    here, there = task_means(scores), task_means(baseline.tasks)
    names = [name for name in here if name in there]
    pairs = [here[name] for name in names], [there[name] for name in names]
    attempts = min(mean_attempts(scores), mean_attempts(baseline.tasks))
    found = {level: compare_paired(*pairs, level, attempts=attempts) for level in CONFIDENCES}
    paired = found[CONFIDENCE]
    if paired is None:
        message = f"no task was scored both here and in BenchmarkRun {baseline_name!r}; look at the void trials"
        return RunComparison(baseline=baseline_name, verdict=Verdict.NOT_COMPARABLE, message=message)
    return RunComparison(
        baseline=baseline_name,
        verdict=verdict(paired),
        difference=decimal(paired.difference),
        interval=wire_interval(paired.interval),
        further_intervals=_further(found),
        wins=paired.wins,
        losses=paired.losses,
        ties=paired.ties,
        minimum_detectable=None if paired.minimum_detectable is None else decimal(paired.minimum_detectable),
        message=_remark(*pairs, paired=paired),
    )


def _spoiled(baseline: RunArtifact) -> str | None:
    """Say why a baseline is none to compare with; None where it is one."""
    if baseline.spoiled is None:
        return None
    return f"the baseline is not valid: {baseline.spoiled}; measure it again under another spec.output.uri"


def verdict(paired: PairedDifference) -> Verdict:
    """Return the verdict: a difference is claimed only where the interval excludes 0."""
    if not paired.interval.excludes(0.0):
        return Verdict.INCONCLUSIVE
    return Verdict.BETTER if paired.difference > 0 else Verdict.WORSE


def differing(measured: Comparability, baseline: Comparability) -> str | None:
    """Say what makes two runs incomparable; None when nothing does."""
    parts = [*_parts(measured, baseline, _NAMES), *_parts(measured.tool_use, baseline.tool_use, _TOOL_USE_NAMES)]
    if not parts:
        return None
    return f"run and baseline differ in {'; '.join(parts)}; give both runs the same values"


def _parts(measured: object, baseline: object, names: Mapping[str, str]) -> Iterator[str]:
    for field, name in names.items():
        here, there = getattr(measured, field, None), getattr(baseline, field, None)
        if here != there:
            yield f"{name}: {_short(here)} here, {_short(there)} in the baseline"


def _further(found: dict[float, PairedDifference | None]) -> list[Interval]:
    return [
        wire_interval(paired.interval, level)
        for level, paired in found.items()
        if paired is not None and level != CONFIDENCE
    ]


def _remark(here: Sequence[float], there: Sequence[float], *, paired: PairedDifference) -> str | None:
    """Say what limits the comparison, where something does."""
    for value, name, fix in ((0.0, "solves none", "easier"), (1.0, "solves all", "harder")):
        if all(score == value for score in (*here, *there)):
            return (
                f"both runs score {value:g} on every task ({name} of {len(here)}): these tasks cannot tell the two"
                f" apart; take {fix} ones"
            )
    if paired.minimum_detectable is None:
        return f"{len(here)} tasks are too few to show any difference; take more tasks or attempts"
    return None


def _short(value: object) -> str:
    text = str(value)
    return text[: len("sha256:") + 8] if text.startswith("sha256:") else text
