"""Results in words."""

from whetstone_api.benchmark_result import Interval, RunComparison, Verdict
from whetstone_api.run_artifact import RunArtifact


def interval_text(interval: Interval | None) -> str:
    """Return an interval in words; empty when there is none."""
    if interval is None:
        return ""
    return f"{float(interval.confidence) * 100:g} % interval {interval.low} to {interval.high}"


def run_sentence(artifact: RunArtifact) -> str:
    """Say what a run found, and what it did not."""
    if artifact.spoiled is not None:
        return f"Not valid: {artifact.spoiled}. {_found(artifact)}"
    return _found(artifact)


def _found(artifact: RunArtifact) -> str:
    results = artifact.results
    if not results.tasks:
        return f"No score: all {results.trials} trials are void, spoiled by the infrastructure and not by the model."
    between = interval_text(results.interval)
    text = f"Mean {results.mean}{f' ({between})' if between else ''} over {results.tasks} tasks"
    text += f", {results.trials} trials, {results.void} void."
    if results.void:
        text += f" With void trials as 0 the mean is {results.strict_mean}."
    if artifact.refused:
        text += f" Tasks of the suite that were not run: {len(artifact.refused)}; the score says nothing of them."
    if results.oracle is not None:
        text += f" {results.oracle.solved} tasks were solved by their own solutions here"
        unvouched = results.oracle.without_solution
        text += f"; {unvouched} have none, so nothing vouches for them." if unvouched else "."
    rewards = [trial.reward for task in artifact.tasks for trial in task.trials if trial.reward is not None]
    if len(set(rewards)) == 1 and len(rewards) > 1:
        text += f" Every scored trial got {rewards[0]:g}, so these tasks cannot tell such models apart."
    return text


def verdict_sentence(comparison: RunComparison) -> str:
    """Say what a comparison found, and what may not be read from it."""
    name = comparison.baseline
    if comparison.verdict is Verdict.NOT_COMPARABLE:
        return f"Not comparable with {name}: {comparison.message or 'the runs differ in more than the model'}."
    figures = f"difference {comparison.difference} ({interval_text(comparison.interval)})"
    counts = f"{comparison.wins} tasks won, {comparison.losses} lost, {comparison.ties} tied"
    if comparison.verdict is Verdict.INCONCLUSIVE:
        text = f"No difference to {name} can be claimed: {figures}; {counts}."
        least = comparison.minimum_detectable
        return f"{text} So many tasks could have shown a difference of {least} or more." if least else text
    return f"{comparison.verdict.value} than {name}: {figures}; {counts}."
