"""From Harbor's `result.json` files to the figures of a run.

Trials are of three kinds. Scored: the verifier gave a reward and nothing but the agent's own doing (its time, its
output) went wrong. Void: anything else, the infrastructure spoiled it; a void trial says nothing about the model and is
counted apart. Missing trials are void too. Both readings of the mean are kept: over scored trials, and with void as 0.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from whetstone_api.benchmark_result import Interval, RunResults
from whetstone_api.run_artifact import TaskScore, TrialScore

from whetstone_agent.statistics import CONFIDENCE, Range, mean_interval
from whetstone_agent.tasks import AdmittedTask
from whetstone_agent.verifier_setup import honest_result

AGENT_ERRORS: Final = frozenset(
    {
        "AgentFailedError",
        "AgentTimeoutError",
        "BudgetExceededError",
        "NonZeroAgentExitCodeError",
        "ContextWindowExceededError",
        "ContextLengthExceededError",
        "OutputTokenExceededError",
        "OutputLengthExceededError",
        "AgentSafetyRefusalError",
    }
)
"""Exceptions that are the agent's own doing (Harbor's policy: graded, reward valid): such a trial is scored."""
AGENT_TIMEOUT: Final = "AgentTimeoutError"
DIGITS: Final = 6
"""Decimal places of published figures."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One trial as Harbor left it."""

    name: str
    task: str
    """Name of the task's folder."""
    reward: float | None
    """Absent for a void trial."""
    error: str | None
    prompt_tokens: int
    completion_tokens: int
    started_at: datetime | None
    finished_at: datetime | None


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
        return _trial(honest_result(data, folder))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def score_tasks(trials: Sequence[Trial], *, tasks: Sequence[AdmittedTask], attempts: int) -> list[TaskScore]:
    """Sort trials by task; attempts without a result become void trials.

    Args:
        trials: Trials of any order.
        tasks: Tasks of the suite, which give the order.
        attempts: Trials that each task should have.
    """
    scores = []
    for task in tasks:
        own = [
            TrialScore(trial=trial.name, reward=trial.reward, error=trial.error)
            for trial in trials
            if trial.task == task.name
        ]
        missing = [
            TrialScore(trial=f"{task.name}#{number}", error="MissingResult")
            for number in range(len(own) + 1, attempts + 1)
        ]
        scores.append(TaskScore(task=task.name, digest=task.digest, trials=own + missing))
    return scores


def task_means(scores: Sequence[TaskScore]) -> dict[str, float]:
    """Return the mean reward of each task over its scored trials; tasks without one are left out."""
    means = {}
    for score in scores:
        rewards = [trial.reward for trial in score.trials if trial.reward is not None]
        if rewards:
            means[score.task] = math.fsum(rewards) / len(rewards)
    return means


def strict_task_means(scores: Sequence[TaskScore]) -> dict[str, float]:
    """Return the mean reward of each task with void trials as 0."""
    return {
        score.task: math.fsum(trial.reward or 0.0 for trial in score.trials) / len(score.trials)
        for score in scores
        if score.trials
    }


def run_results(scores: Sequence[TaskScore], *, trials: Sequence[Trial], uri: str) -> RunResults:
    """Return the figures of a run.

    Args:
        scores: Every task with its trials, void ones included.
        trials: The same trials as Harbor left them, for tokens and times.
        uri: Where the full results lie.
    """
    means, strict = task_means(scores), strict_task_means(scores)
    total = sum(len(score.trials) for score in scores)
    void = sum(trial.reward is None for score in scores for trial in score.trials)
    interval = mean_interval(list(means.values()))
    return RunResults(
        tasks=len(means),
        trials=total,
        mean=decimal(_mean(means)),
        strict_mean=decimal(_mean(strict)),
        interval=None if interval is None else wire_interval(interval),
        coverage=decimal((total - void) / total if total else 0.0),
        void=void,
        timeouts=sum(t.error == AGENT_TIMEOUT and t.reward is not None for s in scores for t in s.trials),
        prompt_tokens=sum(trial.prompt_tokens for trial in trials),
        completion_tokens=sum(trial.completion_tokens for trial in trials),
        duration_seconds=_duration(trials),
        uri=uri,
    )


def decimal(value: float) -> str:
    """Return a figure as decimal text of at most `DIGITS` places, without an exponent and without `-0`."""
    text = format(Decimal(str(round(value, DIGITS))).normalize(), "f")
    return "0" if text in ("-0", "0") else text


def wire_interval(interval: Range) -> Interval:
    """Return an interval as the status has it."""
    return Interval(low=decimal(interval.low), high=decimal(interval.high), confidence=decimal(CONFIDENCE))


def _trial(data: Mapping[str, Any]) -> Trial:
    error = (data.get("exception_info") or {}).get("exception_type")
    reward = _reward((data.get("verifier_result") or {}).get("rewards"))
    if error is not None and error not in AGENT_ERRORS:
        reward = None
    if reward is None and error is None:
        error = "RewardMissing"
    usage = data.get("agent_result") or {}
    return Trial(
        name=str(data["trial_name"]),
        task=Path(data["config"]["task"]["path"]).name,
        reward=reward,
        error=error,
        prompt_tokens=int(usage.get("n_input_tokens") or 0),
        completion_tokens=int(usage.get("n_output_tokens") or 0),
        started_at=_time(data.get("started_at")),
        finished_at=_time(data.get("finished_at")),
    )


def _reward(rewards: Mapping[str, Any] | None) -> float | None:
    """Return the key `reward`, else the mean of all keys (Harbor's own reading of several rewards)."""
    if not rewards:
        return None
    value = rewards["reward"] if "reward" in rewards else math.fsum(map(float, rewards.values())) / len(rewards)
    return float(value) if math.isfinite(float(value)) else None


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _mean(by_task: Mapping[str, float]) -> float:
    return math.fsum(by_task.values()) / len(by_task) if by_task else 0.0


def _duration(trials: Sequence[Trial]) -> int | None:
    starts = [trial.started_at for trial in trials if trial.started_at is not None]
    ends = [trial.finished_at for trial in trials if trial.finished_at is not None]
    return round((max(ends) - min(starts)).total_seconds()) if starts and ends else None
