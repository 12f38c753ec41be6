"""One trial as Harbor left it: its reward, what spoiled it, what it took.

Harbor's mean of a task of several steps covers the steps that were executed only, so that a trial which a step's
`min_reward` ended can have 1.0. Here every step that the task declares counts, one that was not reached as 0; a task
whose reward is its last step's has 0 where that was not reached.
"""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from whetstone_api.run_artifact import StepScore, TrialScore

AGENT_TIMEOUT: Final = "AgentTimeoutError"
MODEL_SLOW: Final = "ModelSlowError"
"""The agent's time ran out while the server answered far more slowly than usual; such a trial is void."""
_OVERFLOWS: Final = frozenset({"ContextWindowExceededError", "ContextLengthExceededError"})
_TRUNCATIONS: Final = frozenset({"OutputTokenExceededError", "OutputLengthExceededError"})
_LIMITS: Final = frozenset({AGENT_TIMEOUT, "BudgetExceededError"})
AGENT_ERRORS: Final = (
    frozenset({"AgentFailedError", "AgentSafetyRefusalError", "NonZeroAgentExitCodeError"})
    | _LIMITS
    | _OVERFLOWS
    | _TRUNCATIONS
)
"""Exceptions that are the agent's own doing (Harbor's policy: graded, reward valid): such a trial is scored."""
OUT_OF_DISK: Final = "SandboxOutOfDiskError"
"""The pod wrote more than its task may take up and is gone: the agent's doing once it was at work, and scored 0."""
OVERFLOW_END: Final = "ContextLength"
"""How our agent says that the conversation outgrew the context."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One trial."""

    task: str
    """Name of the task's folder."""
    score: TrialScore

    @property
    def name(self) -> str:
        """Harbor's name of it."""
        return self.score.trial

    @property
    def reward(self) -> float | None:
        """Absent for a void trial."""
        return self.score.reward

    @property
    def error(self) -> str | None:
        """Type of the exception that ended it."""
        return self.score.error


def parse_trial(data: Mapping[str, Any]) -> Trial:
    """Return a trial from its `result.json`.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: It is not one.
    """
    task = Path(data["config"]["task"]["path"])
    step_results = data.get("step_results") or []
    errors = [error for part in (data, *step_results) if (error := _error(part)) is not None]
    error = next((one for one in errors if one not in AGENT_ERRORS), errors[0] if errors else None)
    steps = _steps(task, step_results) if step_results else None
    rewards = (data.get("verifier_result") or {}).get("rewards")
    reward = _reward(rewards) if steps is None else _step_reward(task, steps)
    if error == OUT_OF_DISK and any(part.get("agent_execution") for part in (data, *step_results)):
        reward = reward or 0.0
    elif error is not None and error not in AGENT_ERRORS:
        reward = None
    if reward is None and error is None:
        error = "RewardMissing"
    contexts = [part.get("agent_result") or {} for part in (step_results or [data])]
    said = [context.get("metadata") or {} for context in contexts]
    model = [one.get("model") or {} for one in said]
    if error == AGENT_TIMEOUT and any(one.get("slow") for one in model):
        error, reward = MODEL_SLOW, None
    ends = [str(one["end"]) for one in said if one.get("end")]
    score = TrialScore(
        trial=str(data["trial_name"]),
        reward=reward,
        error=error,
        end=ends[-1] if ends else None,
        rewards=_several(rewards),
        steps=steps,
        timed_out=AGENT_TIMEOUT in errors,
        truncated=any(one in _TRUNCATIONS for one in errors) or any(one.get("truncated") for one in model),
        context_overflow=OVERFLOW_END in ends
        or any(one in _OVERFLOWS for one in errors)
        or any(one.get("overflows") for one in model),
        turns=_turns(said),
        prompt_tokens=sum(int(one.get("n_input_tokens") or 0) for one in contexts),
        completion_tokens=sum(int(one.get("n_output_tokens") or 0) for one in contexts),
        started_at=data.get("started_at"),
        seconds=_seconds(data),
        agent_seconds=_sum_seconds(step_results or [data], "agent_execution"),
        verifier_seconds=_sum_seconds(step_results or [data], "verifier"),
    )
    return Trial(task=task.name, score=score)


def _error(part: Mapping[str, Any]) -> str | None:
    found = (part.get("exception_info") or {}).get("exception_type")
    return None if found is None else str(found)


def _reward(rewards: Mapping[str, Any] | None) -> float | None:
    """Return the key `reward`, else the mean of all keys (Harbor's own reading of several rewards)."""
    if not rewards:
        return None
    value = rewards["reward"] if "reward" in rewards else math.fsum(map(float, rewards.values())) / len(rewards)
    return float(value) if math.isfinite(float(value)) else None


def _several(rewards: Mapping[str, Any] | None) -> dict[str, float] | None:
    if not rewards or set(rewards) == {"reward"}:
        return None
    return {str(name): float(value) for name, value in rewards.items() if math.isfinite(float(value))}


def _steps(task: Path, results: Sequence[Mapping[str, Any]]) -> list[StepScore]:
    """Return all steps that the task declares; where it cannot be read any more, those that were executed."""
    executed = {
        str(result["step_name"]): _reward((result.get("verifier_result") or {}).get("rewards")) for result in results
    }
    declared = [str(step["name"]) for step in _declared(task).get("steps", [])] or list(executed)
    return [StepScore(name=name, reward=executed.get(name)) for name in declared]


def _step_reward(task: Path, steps: Sequence[StepScore]) -> float:
    if _declared(task).get("multi_step_reward_strategy") == "final":
        return steps[-1].reward or 0.0
    return math.fsum(step.reward or 0.0 for step in steps) / len(steps)


def _declared(task: Path) -> dict[str, Any]:
    try:
        return tomllib.loads((task / "task.toml").read_text())
    except (OSError, ValueError):
        return {}


def _turns(said: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the model calls: those that were counted on the way, else `turns` of our agent."""
    counts = [count for one in said if (count := (one.get("model") or {}).get("calls", one.get("turns"))) is not None]
    return sum(int(count) for count in counts) if counts else None


def _seconds(timing: Mapping[str, Any]) -> float | None:
    start, end = timing.get("started_at"), timing.get("finished_at")
    if not start or not end:
        return None
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def _sum_seconds(parts: Sequence[Mapping[str, Any]], phase: str) -> float | None:
    found = [seconds for part in parts if (seconds := _seconds(part.get(phase) or {})) is not None]
    return math.fsum(found) if found else None
