"""Where the work is: to the operator by report, to Prometheus by `/metrics`."""

import logging
import time
from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, start_http_server
from whetstone_api.jobs import METRICS_PORT
from whetstone_api.reports import ProgressReport
from whetstone_api.training_plan import ChosenPlan
from whetstone_api.training_result import PublishedAdapter
from whetstone_api.training_stall import step_line
from whetstone_artifacts.reporting import Reporter

from whetstone_trainer.tracking import Tracking
from whetstone_trainer.watchdog import Watchdog

log = logging.getLogger(__name__)

LOG_SECONDS = 15.0
"""Least time between two lines of the log that tell a step."""


class Progress:
    """Publishes phase and training figures.

    Args:
        reporter: Sends reports to the operator.
        registry: Where the Prometheus series are registered.
        watchdog: Speaks where there is no step for too long.
        tracking: The trackers that users name; they get what a training logs.
    """

    def __init__(
        self,
        reporter: Reporter,
        registry: CollectorRegistry | None = None,
        *,
        watchdog: Watchdog | None = None,
        tracking: Tracking | None = None,
    ) -> None:
        self._reporter = reporter
        self._watchdog = watchdog
        self.tracking = tracking or Tracking()
        self._logged_at = -LOG_SECONDS
        self.registry = registry or CollectorRegistry()
        self._step = Gauge("whetstone_training_step", "Optimizer steps done.", registry=self.registry)
        self._max_steps = Gauge("whetstone_training_max_steps", "Optimizer steps in all.", registry=self.registry)
        self._loss = Gauge("whetstone_training_loss", "Training loss of the latest step.", registry=self.registry)
        self._speed = Gauge(
            "whetstone_training_tokens_per_second", "Tokens trained on a second.", registry=self.registry
        )
        self._eta = Gauge("whetstone_training_eta_seconds", "Seconds of training left.", registry=self.registry)
        self._rate = Gauge(
            "whetstone_training_learning_rate", "Learning rate of the latest step.", registry=self.registry
        )
        self._memory = Gauge("whetstone_training_peak_memory_bytes", "Most memory used so far.", registry=self.registry)
        self._evaluation = Gauge(
            "whetstone_training_evaluation", "The latest evaluation.", ["metric"], registry=self.registry
        )
        self._steps: dict[str, int] = {}
        self._plan: dict[str, Any] | None = None

    def serve(self, port: int = METRICS_PORT) -> None:
        """Serve `/metrics`; a port that is taken costs the metrics, not the training."""
        try:
            start_http_server(port, registry=self.registry)
        except OSError as error:
            log.warning("metrics are not served on port %d: %s", port, error)

    def phase(self, name: str) -> None:
        """Report that a phase began: Validate, Prepare, Train, Verify, Publish, Merge or Push."""
        log.info("phase %s", name)
        if self._watchdog is not None:
            if name == "Train":
                self._watchdog.step(0)
            else:
                self._watchdog.rest()
        self._reporter.send(ProgressReport(phase=name, **self._steps))

    def planned(self, plan: ChosenPlan) -> None:
        """Report how the device is used; each step tells it again, since of several reports the last one counts."""
        self._plan = plan.to_wire()
        self._reporter.send(ProgressReport(phase="Train", plan=self._plan, **self._steps))

    def published(self, adapter: PublishedAdapter) -> None:
        """Report what lies at the output place, at once: servers load it while this program ends."""
        self._reporter.send(ProgressReport(phase="Publish", adapter=adapter.to_wire(), **self._steps), at_once=True)

    def evaluated(self, figures: Mapping[str, float]) -> None:
        """Show what an evaluation measured, by metric."""
        for metric, value in figures.items():
            self._evaluation.labels(metric=metric).set(value)

    def step(
        self,
        *,
        step: int,
        max_steps: int,
        loss: float,
        eta_seconds: float | None,
        tokens_per_second: float | None,
        learning_rate: float | None = None,
        peak_memory_bytes: int | None = None,
    ) -> None:
        """Report an optimizer step.

        Args:
            step: Steps done.
            max_steps: Steps in all.
            loss: Mean loss per token of the step.
            eta_seconds: Seconds left, where known.
            tokens_per_second: Speed of this attempt, where known.
            learning_rate: Learning rate of the step, where known.
            peak_memory_bytes: Most memory used so far, where known.
        """
        self._steps = {"step": step, "max_steps": max_steps}
        self._say(step, max_steps, eta_seconds)
        shown = {
            self._step: step,
            self._max_steps: max_steps,
            self._loss: loss,
            self._eta: eta_seconds,
            self._speed: tokens_per_second,
            self._rate: learning_rate,
            self._memory: peak_memory_bytes,
        }
        for series, value in shown.items():
            if value is not None:
                series.set(value)
        self._reporter.send(
            ProgressReport(
                phase="Train",
                plan=self._plan,
                **self._steps,
                loss=round(loss, 6),
                eta_seconds=None if eta_seconds is None else round(eta_seconds),
                tokens_per_second=tokens_per_second,
                learning_rate=learning_rate,
                peak_memory_bytes=peak_memory_bytes,
            )
        )

    def _say(self, step: int, max_steps: int, eta_seconds: float | None) -> None:
        """Tell the log and the watchdog of a step."""
        left = max_steps - step
        if self._watchdog is not None:
            self._watchdog.step(step, seconds_a_step=(eta_seconds or 0.0) / left if left > 0 else 0.0)
        if time.monotonic() - self._logged_at >= LOG_SECONDS:
            self._logged_at = time.monotonic()
            log.info("%s", step_line(step, max_steps))
