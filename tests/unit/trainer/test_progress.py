"""Progress: figures in series and reports, and transformers' own callback for Kubeflow's trainer-status protocol."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from support.trainer_job import Job
from whetstone_api.reports import ProgressReport
from whetstone_api.trainer_status import TOKEN_VARIABLE, URL_VARIABLE, TrainerStatusMessage
from whetstone_api.training_plan import ChosenPlan, Packing

pytestmark = pytest.mark.torch


class Heard:
    """What a server was sent: token and body of each request."""

    def __init__(self) -> None:
        self.requests: list[tuple[str | None, bytes]] = []
        self.url = ""


@pytest.fixture
def heard() -> Iterator[Heard]:
    found = Heard()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.requests.append((self.headers["Authorization"], body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_port}/"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield found
    server.shutdown()
    thread.join(10)


def token(job: Job) -> Path:
    path = job.folder / "token"
    path.write_text("t")
    return path


def test_callback_of_transformers_speaks_the_protocol_that_the_operator_reads(job: Job, heard: Heard) -> None:
    job.values["hyperparameters"] = {"maxSteps": 3, "batchSize": 2, "learningRate": "1e-2"}
    told = {URL_VARIABLE: heard.url, TOKEN_VARIABLE: str(token(job)), "DISABLE_KUBEFLOW_INTEGRATION": "FALSE"}
    assert job.run("train", **told) == 0, job.log
    assert {sender for sender, _ in heard.requests} == {"Bearer t"}
    reports = [TrainerStatusMessage.model_validate_json(body).report() for _, body in heard.requests]
    assert (reports[0].percent, reports[0].max_steps) == (0, 3)
    last = reports[-1]
    assert (last.phase, last.percent, last.eta_seconds) == ("Train", 100, 0)
    assert last.loss is not None
    assert last.learning_rate is not None


def test_own_trainer_reports_once_and_says_more(job: Job, heard: Heard) -> None:
    job.values["hyperparameters"] = {"maxSteps": 3, "batchSize": 2, "learningRate": "1e-2"}
    job.values["reportUrl"] = heard.url
    assert job.run("train", **{URL_VARIABLE: heard.url, TOKEN_VARIABLE: str(token(job))}) == 0, job.log
    reports = [ProgressReport.model_validate_json(body) for _, body in heard.requests]
    assert (reports[-1].phase, reports[-1].step, reports[-1].max_steps) == ("Publish", 3, 3)
    assert not [body for _, body in heard.requests if b"trainerStatus" in body]


def test_step_is_shown_in_series_and_report() -> None:
    from whetstone_trainer.progress import Progress

    sent: list[ProgressReport] = []

    class Reporter:
        def send(self, report: ProgressReport, *, at_once: bool = False) -> None:
            sent.append(report)

    progress = Progress(Reporter())  # type: ignore[arg-type]
    figures = {"eta_seconds": 7.6, "tokens_per_second": 12.5, "learning_rate": 1e-4, "peak_memory_bytes": 4096}
    progress.step(step=3, max_steps=12, loss=0.5, **figures)  # type: ignore[arg-type]
    progress.evaluated({"evalLoss": 0.25})
    assert sent[-1] == ProgressReport(phase="Train", step=3, max_steps=12, loss=0.5, **{**figures, "eta_seconds": 8})
    found = {
        "step": 3,
        "max_steps": 12,
        "loss": 0.5,
        "eta_seconds": 7.6,
        "tokens_per_second": 12.5,
        "learning_rate": 1e-4,
        "peak_memory_bytes": 4096,
    }
    for name, value in found.items():
        assert progress.registry.get_sample_value(f"whetstone_training_{name}") == value
    assert progress.registry.get_sample_value("whetstone_training_evaluation", {"metric": "evalLoss"}) == 0.25
    progress.phase("Verify")
    assert sent[-1] == ProgressReport(phase="Verify", step=3, max_steps=12)


def test_plan_is_told_with_each_step_since_only_the_latest_report_counts() -> None:
    from whetstone_trainer.progress import Progress

    sent: list[ProgressReport] = []

    class Reporter:
        def send(self, report: ProgressReport, *, at_once: bool = False) -> None:
            sent.append(report)

    progress = Progress(Reporter())  # type: ignore[arg-type]
    plan = ChosenPlan(
        micro_batch_size=2,
        gradient_checkpointing=False,
        packing=Packing.PADDED,
        attention="sdpa",
        compiled=False,
        reason="micro-batch 4 was killed",
    )
    progress.planned(plan)
    progress.step(step=1, max_steps=2, loss=0.5, eta_seconds=None, tokens_per_second=None)
    progress.phase("Verify")
    assert [report.plan for report in sent] == [plan.to_wire(), plan.to_wire(), None]
