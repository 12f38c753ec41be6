"""Trackers that users name by their own variables: TensorBoard, Weights & Biases and MLflow.

Each is written by a process of its own (`tracker_process.py`), fed through a pipe that is never waited for. So a
tracker that does not answer, crashes or hangs costs its own record, and never a step.
"""

import logging
import math
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from fcntl import F_SETPIPE_SZ, fcntl
from pathlib import Path
from typing import Any

from whetstone_api.jobs import TrainingConfig
from whetstone_api.reports import Outcome, TerminationReport
from whetstone_api.wire import WireModel

log = logging.getLogger(__name__)

TRACKING_FOLDER = "tracking"
"""In the workspace: what trackers keep between the attempts."""
PIPE_BYTES = 1 << 20
"""What a tracker that hangs may leave unread before figures are dropped: thousands of steps."""
LINE_BYTES = 4096
"""The kernel takes a line of so many bytes whole or not at all (`PIPE_BUF`)."""
CLOSE_SECONDS = {Outcome.SUCCEEDED: 60.0, Outcome.FAILED: 60.0, Outcome.RETRY: 15.0}
"""How long all trackers together may take to send what they still have; after SIGTERM the pod has little time."""
LAST_WORDS = 120
"""Characters of a tracker's error that a warning shows."""
EVALUATION = "eval_"


class TrackedRun(WireModel):
    """A training as its trackers know it."""

    uid: str
    """Of the object: all attempts are one run."""
    name: str
    folder: str
    """Where a tracker keeps what the next attempt needs."""
    settings: dict[str, Any]
    """The recipe."""


class TrackerMessage(WireModel):
    """One line to a tracker's process. The pipe's end without an `end` means that the training was killed."""

    run: TrackedRun | None = None
    step: int | None = None
    figures: dict[str, float] | None = None
    end: Outcome | None = None


def asked_for(environment: Mapping[str, str]) -> list[str]:
    """Return the trackers that a container's variables ask for."""
    mode = environment.get("WANDB_MODE") or ("online" if environment.get("WANDB_API_KEY") else "disabled")
    asked = {
        "tensorboard": bool(environment.get("TENSORBOARD_LOGGING_DIR")),
        "wandb": mode != "disabled",
        "mlflow": bool(environment.get("MLFLOW_TRACKING_URI")),
    }
    return [name for name, wanted in asked.items() if wanted]


class Tracking:
    """The trackers of one program: none until a training starts them.

    Args:
        close_seconds: How long they may take together to send what they still have, by how the training ended.
    """

    def __init__(self, close_seconds: Mapping[Outcome, float] = CLOSE_SECONDS) -> None:
        self._close_seconds = close_seconds
        self._folder = Path()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._dropped: dict[str, int] = {}

    def start(self, config: TrainingConfig, settings: Mapping[str, Any], names: Sequence[str] | None = None) -> None:
        """Start the trackers of a training.

        Args:
            config: The job's configuration.
            settings: The recipe.
            names: Which; those that the environment asks for when absent.
        """
        self._folder = Path(config.workspace_path) / TRACKING_FOLDER
        run = TrackedRun(
            uid=config.object.uid, name=config.object.name, folder=str(self._folder), settings=dict(settings)
        )
        for name in asked_for(os.environ) if names is None else names:
            try:
                self._processes[name] = self._started(name)
            except OSError as error:
                log.warning("tracker %s cannot be started: %s", name, error)
                continue
            self._dropped[name] = 0
            self._write(name, TrackerMessage(run=run), longest=PIPE_BYTES)
            log.info("the figures of each step go to %s", name)

    def logged(self, step: int, logs: Mapping[str, Any]) -> None:
        """Hand the figures of a step to all trackers. Never waits, never raises.

        Args:
            step: The optimizer step.
            logs: Transformers' log of it; figures get the names that its own integrations give them.
        """
        figures = {
            _tracked_name(name): float(value)
            for name, value in logs.items()
            if isinstance(value, int | float) and math.isfinite(value)
        }
        for name in self._processes:
            self._write(name, TrackerMessage(step=step, figures=figures), longest=LINE_BYTES)

    def close(self, report: TerminationReport) -> TerminationReport:
        """Tell all trackers how the training ended, wait for them for a while, and return the report with `warnings`.

        Args:
            report: How it ended.
        """
        deadline = time.monotonic() + self._close_seconds[report.outcome]
        for name, process in self._processes.items():
            # A pipe that is full has room as soon as the tracker reads on; a run without its end would stay open.
            select.select([], [_pipe(process)], [], max(0.0, deadline - time.monotonic()))
            self._write(name, TrackerMessage(end=report.outcome), longest=LINE_BYTES)
            with suppress(OSError):
                _pipe(process).close()
        warnings = [text for name in self._processes if (text := self._ended(name, deadline)) is not None]
        self._processes.clear()
        for text in warnings:
            log.warning("%s", text)
        if not warnings:
            return report
        return report.model_copy(update={"result": {**report.result, "warnings": warnings}})

    def _started(self, name: str) -> subprocess.Popen[bytes]:
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._words(name).open("wb") as words:
            process = subprocess.Popen(  # noqa: S603 - this interpreter, with a name from a list
                [sys.executable, "-m", "whetstone_trainer.tracker_process", name],
                stdin=subprocess.PIPE,
                stdout=words,
                stderr=subprocess.STDOUT,
                # A signal to the training's group is for the training: it tells the trackers how it ended.
                start_new_session=True,
            )
        pipe = _pipe(process).fileno()
        with suppress(OSError):
            fcntl(pipe, F_SETPIPE_SZ, PIPE_BYTES)
        os.set_blocking(pipe, False)
        return process

    def _write(self, name: str, message: TrackerMessage, *, longest: int) -> None:
        line = message.to_json().encode() + b"\n"
        try:
            if len(line) <= longest and os.write(_pipe(self._processes[name]).fileno(), line) == len(line):
                return
        except (BlockingIOError, BrokenPipeError):
            pass
        self._dropped[name] += 1

    def _ended(self, name: str, deadline: float) -> str | None:
        """Return what went wrong with a tracker; None where all is recorded."""
        process = self._processes[name]
        try:
            code = process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return f"tracker {name} did not take all figures in time and was left behind{self._last_words(name)}"
        if code != 0:
            return f"tracker {name} failed, and not all figures are there{self._last_words(name)}"
        if self._dropped[name]:
            return f"tracker {name} was too slow, and {self._dropped[name]} messages to it were dropped"
        return None

    def _last_words(self, name: str) -> str:
        try:
            lines = self._words(name).read_text(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return f": {lines[-1][:LAST_WORDS]}" if lines else ""

    def _words(self, name: str) -> Path:
        return self._folder / f"{name}.log"


def _pipe(process: subprocess.Popen[bytes]) -> Any:
    return process.stdin


def _tracked_name(name: str) -> str:
    return f"eval/{name.removeprefix(EVALUATION)}" if name.startswith(EVALUATION) else f"train/{name}"
