"""`python -m whetstone_trainer.tracker_process NAME`: writes what comes through its standard input to one tracker.

Where a run lies and who may write it is up to the tracker's own variables.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from whetstone_api.reports import Outcome

from whetstone_trainer.tracking import TrackedRun, TrackerMessage

CONNECT_SECONDS = 30.0
UID_DIGITS = 8
MLFLOW_RUN_FILE = "mlflow-run"
MLFLOW_DEFAULTS = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "10", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3"}
"""Its own defaults try for a quarter of an hour."""
MLFLOW_BATCH = 100
"""Parameters that a server takes at once."""


class Tracker(Protocol):
    """A place for the figures of a run. Any exception ends its record."""

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Record the figures of a step."""
        ...

    def close(self, end: Outcome | None) -> None:
        """Send what is left; None where the training was killed and goes on later."""
        ...


class TensorBoard:
    """Event files in `TENSORBOARD_LOGGING_DIR`, in a folder of the run's own."""

    def __init__(self, run: TrackedRun) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        uid = run.uid.replace("-", "")[:UID_DIGITS]
        self._writer: Any = EventFileWriter(str(Path(os.environ["TENSORBOARD_LOGGING_DIR"]) / f"{run.name}-{uid}"))
        self._begun = False

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Record the figures of a step."""
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary

        if not self._begun:
            # Readers drop what an earlier attempt wrote from this step on: it is done anew.
            session = SessionLog(status=SessionLog.START)
            self._writer.add_event(Event(wall_time=time.time(), step=step, session_log=session))
            self._begun = True
        values = [Summary.Value(tag=name, simple_value=value) for name, value in figures.items()]
        self._writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))
        self._writer.flush()

    def close(self, _end: Outcome | None) -> None:
        """Close the file."""
        self._writer.close()


class WandB:
    """A run of Weights & Biases; its id is the object's uid, so a later attempt goes on with it."""

    def __init__(self, run: TrackedRun) -> None:
        import wandb

        os.environ.setdefault("WANDB_DIR", run.folder)
        settings = wandb.Settings(
            init_timeout=CONNECT_SECONDS, console="off", disable_git=True, disable_code=True, x_disable_stats=True
        )
        offline = os.environ.get("WANDB_MODE") == "offline"
        self._run: Any = wandb.init(
            id=os.environ.get("WANDB_RUN_ID") or run.uid,
            name=os.environ.get("WANDB_NAME") or run.name,
            config=run.settings,
            # Offline there is nobody to ask; what is synchronised later has the same id.
            resume=None if offline else "allow",
            settings=settings,
        )

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Record the figures of a step."""
        self._run.log(dict(figures), step=step)

    def close(self, end: Outcome | None) -> None:
        """Send what is left."""
        self._run.finish(exit_code=0 if end is Outcome.SUCCEEDED else 1)


class MLflow:
    """A run of MLflow; its id is kept in the workspace, so a later attempt goes on with it."""

    def __init__(self, run: TrackedRun) -> None:
        for name, value in MLFLOW_DEFAULTS.items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient

        self._client: Any = MlflowClient()
        kept = Path(run.folder) / MLFLOW_RUN_FILE
        known = os.environ.get("MLFLOW_RUN_ID") or (kept.read_text() if kept.is_file() else "")
        self._id = known or self._created(run)
        kept.write_text(self._id)
        self._client.update_run(self._id, status="RUNNING")

    def _created(self, run: TrackedRun) -> str:
        from mlflow.entities import Param

        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "Default"
        experiment = self._client.get_experiment_by_name(name)
        where = experiment.experiment_id if experiment else self._client.create_experiment(name)
        made: str = self._client.create_run(where, run_name=run.name, tags={"whetstone.uid": run.uid}).info.run_id
        params = [Param(key, value) for key, value in _flat(run.settings)]
        for first in range(0, len(params), MLFLOW_BATCH):
            self._client.log_batch(made, params=params[first : first + MLFLOW_BATCH])
        return made

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Record the figures of a step."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self._client.log_batch(self._id, metrics=[Metric(name, value, now, step) for name, value in figures.items()])

    def close(self, end: Outcome | None) -> None:
        """Say how the run ended; one that goes on later stays open."""
        status = {Outcome.SUCCEEDED: "FINISHED", Outcome.FAILED: "FAILED"}
        if end in status:
            self._client.set_terminated(self._id, status=status[end])


TRACKERS: Mapping[str, Callable[[TrackedRun], Tracker]] = {"tensorboard": TensorBoard, "wandb": WandB, "mlflow": MLflow}


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name, value in sorted(values.items()):
        found += _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else [(prefix + name, str(value))]
    return found


def track(name: str, lines: Iterable[str]) -> None:
    """Write the messages of a training to a tracker, to their end.

    Args:
        name: The tracker.
        lines: `TrackerMessage`s, the first one with the run.
    """
    tracker: Tracker | None = None
    end = None
    for line in lines:
        message = TrackerMessage.model_validate_json(line)
        if message.run is not None:
            tracker = TRACKERS[name](message.run)
        if tracker is not None and message.step is not None:
            tracker.log(message.step, message.figures or {})
        end = message.end or end
    if tracker is not None:
        tracker.close(end)


if __name__ == "__main__":
    try:
        track(sys.argv[1], sys.stdin)
    except Exception as error:
        # The last line is what the training's report shows.
        sys.exit(f"{type(error).__name__}: {' '.join(str(error).split())}")
