"""A pod's report as `status.progress` of a LoRATrainingJob."""

import math

from whetstone_api.training_result import TrainingProgress

from whetstone_operator.runtime.clock import to_rfc3339
from whetstone_operator.runtime.progress import Reported


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
