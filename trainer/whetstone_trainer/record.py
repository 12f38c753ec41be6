"""What a training leaves for people beside the weights: figures of each step, and their curve."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from whetstone_api.adapter_artifact import CURVE_FILE, METRICS_FILE, TrainingRecord

from whetstone_trainer.log_history import figures, is_evaluation

log = logging.getLogger(__name__)

SPEED = "step_tokens_per_second"
"""Name of a step's speed in transformers' log, which every checkpoint holds."""
CURVE_INCHES = (8.0, 4.5)


def training_record(
    history: Sequence[Mapping[str, Any]], *, published_step: int, final: Mapping[str, str]
) -> TrainingRecord:
    """Return the figures of all steps and evaluations.

    Args:
        history: Transformers' log of all steps.
        published_step: The step whose weights are published.
        final: Final figures as decimals.
    """
    return TrainingRecord(
        steps=[_step(entry) for entry in history if "loss" in entry],
        evaluations=[{"step": entry["step"], **figures(entry)} for entry in history if is_evaluation(entry)],
        published_step=published_step,
        final=dict(final),
    )


def _step(entry: Mapping[str, Any]) -> dict[str, int | float]:
    named = {"learning_rate": "learningRate", SPEED: "tokensPerSecond"}
    also = {ours: float(entry[theirs]) for theirs, ours in named.items() if theirs in entry}
    return {"step": entry["step"], **figures(entry), **also}


def write_record(folder: Path, record: TrainingRecord) -> None:
    """Write the figures into the adapter's folder, and draw their curve."""
    (folder / METRICS_FILE).write_text(record.to_json())
    try:
        _draw(folder / CURVE_FILE, record)
    except ImportError as error:
        # An image of somebody else's may train without a library for pictures.
        log.warning("the loss curve is not drawn: %s", error)


def _draw(path: Path, record: TrainingRecord) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=CURVE_INCHES, layout="constrained")
    axes = figure.add_subplot(xlabel="step", ylabel="loss")
    axes.plot([entry["step"] for entry in record.steps], [entry["loss"] for entry in record.steps], label="training")
    if record.evaluations:
        steps, losses = ([entry[name] for entry in record.evaluations] for name in ("step", "evalLoss"))
        axes.plot(steps, losses, marker="o", label="rows held out")
    if record.steps and record.published_step != record.steps[-1]["step"]:
        axes.axvline(record.published_step, color="grey", linestyle=":", label="published")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    # Without the library's name and version, equal figures give equal bytes.
    FigureCanvasAgg(figure).print_png(str(path), metadata={"Software": None})
