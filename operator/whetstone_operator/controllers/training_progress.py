"""A pod's report as `status.progress` and `status.plan` of a LoRATrainingJob."""

import logging
import math

from pydantic import ValidationError
from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.training_plan import ChosenPlan
from whetstone_api.training_result import TrainingProgress

from whetstone_operator.runtime.clock import to_rfc3339
from whetstone_operator.runtime.progress import Reported
from whetstone_operator.runtime.reconcile import Work

logger = logging.getLogger(__name__)


def hear_plan(work: Work[LoRATrainingJob]) -> None:
    """Write the plan by which the training says that it is at work into the status."""
    reported = work.context.board.get(work.key)
    if reported is None or reported.report.plan is None:
        return
    try:
        work.status["plan"] = ChosenPlan.model_validate(reported.report.plan).to_wire()
    except ValidationError as error:
        logger.warning("%s reports a plan of another form (%d errors)", work.key, error.error_count())


def progress_of(reported: Reported) -> TrainingProgress:
    """Return what the status says of the latest report."""
    report = reported.report
    percent = report.percent
    if report.step is not None and report.max_steps:
        percent = 100 * report.step // report.max_steps
    return TrainingProgress(
        phase=report.phase[:32],
        percent=None if percent is None else max(0, min(100, percent)),
        step=report.step,
        max_steps=report.max_steps,
        loss=_decimal(report.loss, ".4f"),
        eta_seconds=report.eta_seconds,
        learning_rate=_decimal(report.learning_rate, ".3e"),
        tokens_per_second=_decimal(report.tokens_per_second, ".1f"),
        peak_memory_bytes=report.peak_memory_bytes,
        updated_at=to_rfc3339(reported.at),
    )


def _decimal(value: float | None, form: str) -> str | None:
    return format(value, form) if value is not None and math.isfinite(value) else None
