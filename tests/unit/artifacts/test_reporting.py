"""Reporting: sent with the token, coalesced, and never in the caller's way."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue

import pytest
from whetstone_api.reports import MAX_TERMINATION_BYTES, Outcome, ProgressReport, TerminationReport
from whetstone_artifacts.reporting import Reporter, write_termination


@pytest.fixture
def received() -> Iterator[tuple[str, "Queue[tuple[str, dict[str, object]]]"]]:
    requests: Queue[tuple[str, dict[str, object]]] = Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            requests.put((self.headers["Authorization"], json.loads(body)))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/r", requests
    server.shutdown()
    server.server_close()


def test_bursts_are_coalesced_and_the_newest_report_arrives(
    received: tuple[str, "Queue[tuple[str, dict[str, object]]]"], tmp_path: Path
) -> None:
    url, requests = received
    (tmp_path / "token").write_text("secret\n")
    reporter = Reporter(url=url, token_path=tmp_path / "token", interval_seconds=60)
    for step in range(100):
        reporter.send(ProgressReport(phase="Train", step=step, max_steps=100))
    reporter.close()
    got = [requests.get(timeout=10) for _ in range(requests.qsize())]
    assert 1 <= len(got) <= 2
    assert got[-1] == ("Bearer secret", {"phase": "Train", "step": 99, "maxSteps": 100})


def test_report_that_somebody_waits_for_is_not_held_back(
    received: tuple[str, "Queue[tuple[str, dict[str, object]]]"], tmp_path: Path
) -> None:
    url, requests = received
    (tmp_path / "token").write_text("secret\n")
    reporter = Reporter(url=url, token_path=tmp_path / "token", interval_seconds=60)
    reporter.send(ProgressReport(phase="Verify"))
    assert requests.get(timeout=10)[1] == {"phase": "Verify"}
    reporter.send(ProgressReport(phase="Publish", adapter={"uri": "pvc://a/b"}), at_once=True)
    assert requests.get(timeout=10)[1] == {"phase": "Publish", "adapter": {"uri": "pvc://a/b"}}
    reporter.close()


def test_unreachable_operator_costs_nothing(tmp_path: Path) -> None:
    reporter = Reporter(url="http://127.0.0.1:9/r", token_path=tmp_path / "absent")
    reporter.send(ProgressReport(phase="Train"))
    reporter.close()


def test_termination_message_fits_and_unwritable_path_is_survived(tmp_path: Path) -> None:
    report = TerminationReport(outcome=Outcome.FAILED, reason="DatasetInvalid", message="ä" * 9000)
    write_termination(report, tmp_path / "log")
    assert (tmp_path / "log").stat().st_size <= MAX_TERMINATION_BYTES
    assert TerminationReport.model_validate_json((tmp_path / "log").read_bytes()).reason == "DatasetInvalid"
    write_termination(report, tmp_path / "no" / "log")
