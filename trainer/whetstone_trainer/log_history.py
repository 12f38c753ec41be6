"""What transformers' log of a training says: the figures of steps and evaluations, and which evaluation was the best.

Every checkpoint holds the log. So all decisions are made from it alone, and a resumed training makes the same ones.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whetstone_api.training_evaluation import EarlyStoppingSpec
from whetstone_api.vocabulary import Reason

from whetstone_trainer.errors import UserError

LOWER_IS_BETTER = ("loss", "entropy")
"""Ends of the names of metrics that are to fall; all others are to rise."""
_NO_METRICS = re.compile(r"step|epoch|total_flos|learning_rate|num_tokens|.*(runtime|_per_second)|train_.*")
"""Entries of the log that say nothing of the model."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the evaluations so far say.

    Args:
        best_step: Step of the best one; None before the first.
        exhausted: Whether so many since then were no better that the training ends.
    """

    best_step: int | None
    exhausted: bool


def judge(history: Sequence[Mapping[str, Any]], stopping: EarlyStoppingSpec) -> Verdict:
    """Return which evaluation was the best, and whether to stop.

    Args:
        history: Log of all steps; an evaluation of a step comes after the step.
        stopping: Metric and patience.

    Raises:
        UserError: `INVALID_SPEC` for a metric that is not logged.
    """
    measured = _measured(history, stopping.metric)
    if not measured:
        return Verdict(best_step=None, exhausted=False)
    sign = 1 if stopping.metric.lower().endswith(LOWER_IS_BETTER) else -1
    best = min(range(len(measured)), key=lambda index: (sign * measured[index][1], index))
    return Verdict(best_step=measured[best][0], exhausted=len(measured) - 1 - best >= stopping.patience)


def best_step(history: Sequence[Mapping[str, Any]], stopping: EarlyStoppingSpec | None) -> int | None:
    """Return the step of the best evaluation so far; None without early stopping, or before the first."""
    return judge(history, stopping).best_step if stopping else None


def is_exhausted(history: Sequence[Mapping[str, Any]], stopping: EarlyStoppingSpec | None) -> bool:
    """Return whether the training ends early because the evaluations get no better."""
    return stopping is not None and judge(history, stopping).exhausted


def _measured(history: Sequence[Mapping[str, Any]], metric: str) -> list[tuple[int, float]]:
    """Return step and newest value of a metric at every evaluation."""
    newest: dict[str, float] = {}
    found: list[tuple[int, float]] = []
    for entry in history:
        newest |= figures(entry)
        if not is_evaluation(entry):
            continue
        if metric not in newest:
            raise UserError(
                Reason.INVALID_SPEC,
                f"spec.evaluation.earlyStopping.metric is {metric}, which this training does not log; choose one of"
                f" {', '.join(sorted(newest))}",
            )
        found.append((int(entry["step"]), newest[metric]))
    return found


def is_evaluation(entry: Mapping[str, Any]) -> bool:
    """Return whether an entry of the log is an evaluation."""
    return "eval_loss" in entry


def figures(entry: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics of an entry of the log by our names: `eval_loss` is `evalLoss`, DPO's `rewards/margins`
    `rewardsMargins`."""
    return {
        _camel(key): float(value)
        for key, value in entry.items()
        if isinstance(value, int | float) and not _NO_METRICS.fullmatch(key)
    }


def evaluated(history: Sequence[Mapping[str, Any]], step: int) -> dict[str, float]:
    """Return what the evaluation after a step measured; nothing where there was none."""
    found = [entry for entry in history if is_evaluation(entry) and entry["step"] == step]
    return {name: value for name, value in figures(found[-1]).items() if name.startswith("eval")} if found else {}


def _camel(key: str) -> str:
    first, *rest = re.split(r"[_/]", key)
    return first + "".join(part[:1].upper() + part[1:] for part in rest)
