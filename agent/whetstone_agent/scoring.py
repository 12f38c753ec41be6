"""From Harbor's `result.json` files to the figures of a run.

Trials are of three kinds. Scored: the verifier gave a reward and nothing but the agent's own doing (its time, its
output) went wrong. Void: anything else, the infrastructure spoiled it; a void trial says nothing about the model and is
counted apart. Missing trials are void too. Both readings of the mean are kept: over scored trials, and with void as 0.
"""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from whetstone_api.benchmark_result import RungFigures, RunResults, TokenPrices
from whetstone_api.jobs import RunConfig
from whetstone_api.run_artifact import RunArtifact, TaskScore, TrialScore
from whetstone_artifacts.command_figures import command_figures
from whetstone_artifacts.data.ladder import Rung
from whetstone_artifacts.figures import (
    SOLVED,
    at_confidence,
    decimal,
    mean,
    mean_intervals,
    scored_rewards,
    solved_within,
    strict_task_means,
    task_means,
)
from whetstone_artifacts.statistics import CONFIDENCE
from whetstone_artifacts.validity import why_invalid

from whetstone_agent.tasks import ScoredTask
from whetstone_agent.trials import Trial, parse_trial
from whetstone_agent.verifier_setup import honest_result


def read_trials(job_folder: Path) -> list[Trial]:
    """Read every trial of a Harbor job folder; a file that is missing or half written is left out (a void trial)."""
    if not job_folder.is_dir():
        return []
    trials = (read_trial(folder) for folder in sorted(job_folder.iterdir()) if folder.is_dir())
    return [trial for trial in trials if trial is not None]


def read_trial(folder: Path) -> Trial | None:
    """Read one trial's folder; None when it holds no readable result."""
    try:
        data = json.loads((folder / "result.json").read_text())
        return parse_trial(honest_result(data, folder))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def score_tasks(trials: Sequence[Trial], *, tasks: Sequence[ScoredTask], attempts: int) -> list[TaskScore]:
    """Sort trials by task; attempts without a result become void trials.

    Args:
        trials: Trials of any order.
        tasks: Tasks of the suite, which give the order.
        attempts: Trials that each task should have.
    """
    scores = []
    for task in tasks:
        own = [trial.score for trial in trials if trial.task == task.name]
        missing = [
            TrialScore(trial=f"{task.name}#{number}", error="MissingResult")
            for number in range(len(own) + 1, attempts + 1)
        ]
        scores.append(TaskScore(task=task.name, digest=task.digest, tags=list(task.tags), trials=own + missing))
    return scores


def run_results(scores: Sequence[TaskScore], *, uri: str, config: RunConfig | None = None) -> RunResults:
    """Return the figures of a run.

    Args:
        scores: Every task with its trials, void ones included.
        uri: Where the full results lie.
        config: What the run asks to be told, prices and each k of pass@k.
    """
    means, trials = task_means(scores), [trial for score in scores for trial in score.trials]
    scored = [trial for trial in trials if trial.reward is not None]
    intervals = mean_intervals(scores)
    results = RunResults(
        tasks=len(means),
        trials=len(trials),
        mean=decimal(mean(list(means.values()))),
        strict_mean=decimal(mean(list(strict_task_means(scores).values()))),
        interval=at_confidence(intervals),
        further_intervals=[one for one in intervals if one.confidence != decimal(CONFIDENCE)] or None,
        coverage=decimal(len(scored) / len(trials) if trials else 0.0),
        void=len(trials) - len(scored),
        timeouts=sum(trial.timed_out for trial in scored),
        truncations=sum(trial.truncated for trial in scored),
        context_overflows=sum(trial.context_overflow for trial in scored),
        prompt_tokens=sum(trial.prompt_tokens for trial in trials),
        completion_tokens=sum(trial.completion_tokens for trial in trials),
        duration_seconds=_duration(trials),
        rungs=rung_figures(scores) or None,
        uri=uri,
    )
    return results if config is None else told(results, scores, config)


def told(results: RunResults, scores: Sequence[TaskScore], config: RunConfig) -> RunResults:
    """Return the figures with what this run's spec asks for beyond them; adopted results were measured by another."""
    ks = config.pass_at_k or [1, config.attempts]
    return results.model_copy(
        update={
            "pass_at_k": solved_within(scores, ks) or None,
            "cost": None if config.prices is None else cost(results, config.prices),
        }
    )


def told_artifact(artifact: RunArtifact, config: RunConfig) -> RunArtifact:
    """Return a finished run, its figures and whether they count as this run's spec asks for them."""
    invalid = why_invalid(artifact.results, artifact.engine_check, config.maximum_error_rate)
    figures = told(artifact.results, artifact.tasks, config)
    commands = command_figures(Path(config.output_path), artifact.tasks)
    figures = figures.model_copy(update={"commands": commands})
    return artifact.model_copy(update={"results": figures, "invalid": invalid})


def rung_figures(scores: Sequence[TaskScore]) -> list[RungFigures]:
    """Return the figures of the tasks that are tagged with each rung of tool use."""
    found = []
    for rung in Rung:
        own = [score for score in scores if rung in score.tags]
        means, rewards = task_means(own), [reward for score in own for reward in scored_rewards(score)]
        if rewards:
            share = sum(reward >= SOLVED for reward in rewards) / len(rewards)
            told_mean = decimal(mean(list(means.values())))
            found.append(RungFigures(rung=rung, tasks=len(means), mean=told_mean, success=decimal(share)))
    return found


def cost(results: RunResults, prices: TokenPrices) -> str:
    """Return what a run's tokens cost."""
    prompt, completion = results.prompt_tokens or 0, results.completion_tokens or 0
    return decimal(float(prices.cost(prompt_tokens=prompt, completion_tokens=completion)))


def _duration(trials: Sequence[TrialScore]) -> int | None:
    spans = [
        (start, start + timedelta(seconds=trial.seconds))
        for trial in trials
        if trial.started_at and trial.seconds is not None
        for start in [datetime.fromisoformat(trial.started_at)]
    ]
    if not spans:
        return None
    return round((max(end for _, end in spans) - min(start for start, _ in spans)).total_seconds())
