"""Kubeflow's trainer-status protocol: how a training program that knows nothing of Whetstone reports its progress.

Transformers has a callback for it, which switches itself on where `KUBEFLOW_TRAINER_SERVER_URL` is set; the operator
answers it like a report of our own trainer. Only what a status shows is read.
"""

from pydantic import Field

from whetstone_api.reports import ProgressReport
from whetstone_api.wire import WireModel

URL_VARIABLE = "KUBEFLOW_TRAINER_SERVER_URL"
TOKEN_VARIABLE = "KUBEFLOW_TRAINER_SERVER_TOKEN"  # noqa: S105 - a variable's name
"""Names a file with the token."""


class TrainerMetric(WireModel):
    """One figure."""

    name: str
    value: str


class TrainerStatus(WireModel):
    """Where a training is."""

    progress_percentage: int | None = None
    estimated_remaining_seconds: int | None = None
    metrics: list[TrainerMetric] = Field(default_factory=list)
    """Names as transformers logs them: loss, learning_rate; current_step and total_steps."""


class TrainerStatusMessage(WireModel):
    """The body of a request."""

    trainer_status: TrainerStatus

    def report(self) -> ProgressReport:
        """Return the same as a report of our own."""
        status = self.trainer_status
        figures = {metric.name: number for metric in status.metrics if (number := _number(metric.value)) is not None}

        def whole(name: str) -> int | None:
            return int(figures[name]) if name in figures else None

        return ProgressReport(
            phase="Train",
            percent=status.progress_percentage,
            step=whole("current_step"),
            max_steps=whole("total_steps"),
            loss=figures.get("loss"),
            learning_rate=figures.get("learning_rate"),
            eta_seconds=status.estimated_remaining_seconds,
        )


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if abs(number) < float("inf") else None
