"""What happens after each training step: report, watch the loss, stop on SIGTERM."""

import logging
import math
import resource
import time
from typing import Any

import torch
from transformers import TrainerCallback
from whetstone_api.vocabulary import Reason

from whetstone_trainer.distributed import Ranks
from whetstone_trainer.errors import UserError
from whetstone_trainer.log_history import evaluated
from whetstone_trainer.progress import Progress
from whetstone_trainer.record import SPEED
from whetstone_trainer.stopping import StopSignal

log = logging.getLogger(__name__)


class ProgressCallback(TrainerCallback):
    """Reports steps and ends a training whose loss is not finite.

    Args:
        progress: Where to.
        tokens_per_step: Mean tokens of an optimizer step.
    """

    def __init__(self, progress: Progress, *, tokens_per_step: float) -> None:
        self.losses: list[float] = []
        """Loss of each step of this attempt."""
        self._progress = progress
        self._tokens_per_step = tokens_per_step
        self._started = time.monotonic()
        self._first_step = 0
        self._step_started = self._started
        self._step_seconds = 0.0

    def on_train_begin(self, _args: Any, state: Any, _control: Any, **_kwargs: Any) -> None:
        """Start the clock of this attempt."""
        self._started = time.monotonic()
        self._first_step = state.global_step
        log.info("the steps begin, after %d of %d", state.global_step, state.max_steps)

    def on_step_begin(self, _args: Any, _state: Any, _control: Any, **_kwargs: Any) -> None:
        """Start the clock of a step."""
        self._step_started = time.monotonic()

    def on_step_end(self, _args: Any, _state: Any, _control: Any, **_kwargs: Any) -> None:
        """Stop the clock of the step: evaluation and checkpoint come after it."""
        self._step_seconds = time.monotonic() - self._step_started

    def on_log(self, _args: Any, state: Any, _control: Any, logs: dict[str, Any] | None = None, **_kwargs: Any) -> None:
        """Take the figures of a step.

        Raises:
            UserError: `TRAINING_DIVERGED`.
        """
        if not logs:
            return
        self._progress.tracking.logged(state.global_step, logs)
        if "loss" not in logs:
            return
        loss = float(logs["loss"])
        gradient = float(logs.get("grad_norm", 0.0))
        if not (math.isfinite(loss) and math.isfinite(gradient)):
            raise UserError(
                Reason.TRAINING_DIVERGED,
                f"loss is {loss} and gradient norm {gradient} at step {state.global_step}; lower"
                " spec.hyperparameters.learningRate or raise warmupRatio",
            )
        self.losses.append(loss)
        if self._step_seconds:
            # The log is in every checkpoint, so a training that goes on knows the speed of the steps before.
            state.log_history[-1][SPEED] = round(self._tokens_per_step / self._step_seconds, 1)
        done = state.global_step - self._first_step
        seconds = (time.monotonic() - self._started) / done if done else None
        self._progress.step(
            learning_rate=float(logs["learning_rate"]) if "learning_rate" in logs else None,
            peak_memory_bytes=peak_memory_bytes(),
            step=state.global_step,
            max_steps=state.max_steps,
            loss=loss,
            eta_seconds=None if seconds is None else seconds * (state.max_steps - state.global_step),
            tokens_per_second=None if not seconds else self._tokens_per_step / seconds,
        )

    def on_evaluate(self, _args: Any, state: Any, _control: Any, **_kwargs: Any) -> None:
        """Take the figures of an evaluation."""
        self._progress.evaluated(evaluated(state.log_history, state.global_step))


def peak_memory_bytes() -> int:
    """Return the most memory used so far: of this process's device, or without one of the process."""
    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class StopCallback(TrainerCallback):
    """On SIGTERM to any process: all save after the same step and leave the loop.

    Args:
        stop: The signal to this process.
        ranks: The processes that train together.
    """

    def __init__(self, stop: StopSignal, ranks: Ranks) -> None:
        self._stop = stop
        self._ranks = ranks

    def on_step_end(self, _args: Any, _state: Any, control: Any, **_kwargs: Any) -> None:
        """Ask the trainer to save and stop."""
        if self._ranks.any(self._stop.requested):
            control.should_save = True
            control.should_training_stop = True
