"""Trackers that users name by their variables: what is logged is there, and one that fails costs nothing else."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.trainer_job import ROOT, Job
from support.wandb_service import wandb_service
from whetstone_api.reports import Outcome, TerminationReport
from whetstone_trainer import tracking
from whetstone_trainer.tracking import Tracking, asked_for

pytestmark = pytest.mark.torch
UID = "0f3b7c1e-1111-2222-3333-444455556666"
LOGS = {"loss": 2.5, "learning_rate": 0.01, "note": "no figure", "entropy": float("nan")}


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trackers' processes find this source tree."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(str(ROOT / part) for part in ("operator", "trainer")))


@pytest.fixture
def attempt(job: Job, importable: None) -> Callable[..., TerminationReport]:
    """Run an attempt of a training that logs some steps to one tracker, and return its report."""
    job.values["object"]["uid"] = UID

    def run(name: str, steps: range, outcome: Outcome = Outcome.SUCCEEDED, wait: float = 60.0) -> TerminationReport:
        trackers = Tracking(dict.fromkeys(Outcome, wait))
        trackers.start(job.config, {"lora": {"rank": 4}, "datasets": ["d"]}, [name])
        for step in steps:
            trackers.logged(step, {**LOGS, "loss": 10.0 - step})
        trackers.logged(steps[-1], {"eval_loss": 1.5})
        return trackers.close(TerminationReport(outcome=outcome, reason="Succeeded", message="m"))

    return run


@pytest.mark.parametrize(
    ("environment", "names"),
    [
        ({}, []),
        ({"TENSORBOARD_LOGGING_DIR": "/logs"}, ["tensorboard"]),
        ({"WANDB_API_KEY": "k", "MLFLOW_TRACKING_URI": "http://m"}, ["wandb", "mlflow"]),
        ({"WANDB_MODE": "offline"}, ["wandb"]),
        ({"WANDB_API_KEY": "k", "WANDB_MODE": "disabled"}, []),
        ({"WANDB_PROJECT": "p", "MLFLOW_EXPERIMENT_NAME": "e"}, []),
    ],
)
def test_variables_choose_the_trackers(environment: dict[str, str], names: list[str]) -> None:
    assert asked_for(environment) == names


def trackers_alive() -> list[int]:
    """Return the ids of the trackers' processes that this one has started and that still live."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if parent == os.getpid() and b"whetstone_trainer.tracker_process" in command:
            found.append(int(folder.name))
    return found


def events_of(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder))
    found.Reload()
    return found


def test_tensorboard_has_each_step_once_also_after_a_kill(
    attempt: Callable[..., TerminationReport], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "logs"))
    assert attempt("tensorboard", range(1, 4), Outcome.RETRY).result == {}
    assert attempt("tensorboard", range(3, 6)).result == {}
    events = events_of(tmp_path / "logs" / "t-0f3b7c1e")
    assert sorted(events.Tags()["scalars"]) == ["eval/loss", "train/learning_rate", "train/loss"]
    assert [(event.step, event.value) for event in events.Scalars("train/loss")] == [
        (step, 10.0 - step) for step in range(1, 6)
    ]


def test_mlflow_goes_on_with_the_same_run(
    attempt: Callable[..., TerminationReport], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path}/mlruns")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "loops")
    from mlflow import MlflowClient

    assert attempt("mlflow", range(1, 3), Outcome.RETRY).result == {}
    client = MlflowClient()
    experiment = client.get_experiment_by_name("loops")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "RUNNING"
    assert attempt("mlflow", range(3, 5)).result == {}
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.status, run.info.run_name) == ("FINISHED", "t")
    assert run.data.params == {"lora.rank": "4", "datasets": "['d']"}
    losses = client.get_metric_history(run.info.run_id, "train/loss")
    assert [(one.step, one.value) for one in losses] == [(step, 10.0 - step) for step in range(1, 5)]
    assert attempt("mlflow", range(5, 6), Outcome.FAILED).result == {}
    assert client.get_run(run.info.run_id).info.status == "FAILED"


def test_wandb_offline_keeps_all_attempts_for_its_own_client_to_send(
    attempt: Callable[..., TerminationReport], job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert attempt("wandb", range(1, 3), Outcome.RETRY).result == {}
    assert attempt("wandb", range(3, 5)).result == {}
    runs = sorted((job.workspace / "tracking" / "wandb").glob("offline-run-*"))
    with wandb_service() as service:
        variables = {**os.environ, "WANDB_API_KEY": "0" * 40, "WANDB_BASE_URL": service.url, "WANDB_MODE": "online"}
        command = [sys.executable, "-m", "wandb", "sync", "--yes", *map(str, runs)]
        done = subprocess.run(command, env=variables, cwd=job.folder, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert list(service.history) == [UID]
    losses = [(entry["_step"], entry["train/loss"]) for entry in service.history[UID] if "train/loss" in entry]
    assert sorted(losses) == [(step, 10.0 - step) for step in range(1, 5)]
    assert sorted(service.exit_codes) == [0, 1]


def test_tracker_that_does_not_answer_is_left_behind_with_a_warning(
    attempt: Callable[..., TerminationReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{silent.getsockname()[1]}")
        # More than a pipe holds: what does not fit is dropped, and nobody waits.
        report = attempt("mlflow", range(1, 20_000), wait=0.5)
    assert report.outcome is Outcome.SUCCEEDED
    (warning,) = report.result["warnings"]
    assert warning.startswith("tracker mlflow did not take all figures in time")
    assert trackers_alive() == []


def test_figures_that_a_slow_tracker_does_not_take_are_counted_and_its_run_ends_all_the_same(
    attempt: Callable[..., TerminationReport], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "PIPE_BYTES", tracking.LINE_BYTES)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path}/mlruns")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow import MlflowClient

    # All are written while its process still imports what it needs.
    report = attempt("mlflow", range(1, 2000))
    (warning,) = report.result["warnings"]
    assert re.fullmatch(r"tracker mlflow was too slow, and [1-9]\d+ messages to it were dropped", warning)
    (run,) = MlflowClient().search_runs(["0"])
    assert run.info.status == "FINISHED"


def test_tracker_that_refuses_is_named_with_its_words(
    attempt: Callable[..., TerminationReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", "/proc/nowhere")
    (warning,) = attempt("tensorboard", range(1, 3)).result["warnings"]
    assert warning.startswith("tracker tensorboard failed, and not all figures are there: FileNotFoundError")


def test_training_is_tracked_and_ends_well_whatever_a_tracker_does(job: Job, tmp_path: Path) -> None:
    job.values["hyperparameters"] = {"maxSteps": 3, "batchSize": 2, "learningRate": "1e-2"}
    environment = {
        "TENSORBOARD_LOGGING_DIR": str(tmp_path / "logs"),
        "MLFLOW_TRACKING_URI": "http://127.0.0.1:9",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    }
    assert job.run("train", **environment) == 0, job.log
    scalars = events_of(tmp_path / "logs" / "t-u").Scalars("train/loss")
    assert [event.step for event in scalars] == [1, 2, 3]
    (warning,) = job.report.result["warnings"]
    assert warning.startswith("tracker mlflow failed, and not all figures are there: ")
    assert warning in job.log
    assert job.output.is_dir()
