"""The program that fetches before the runner starts: what arrives, what is refused, and how it ends."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.place_servers import COMMIT, Served, hub_server
from unit.agent.conftest import write_task
from unit.agent.test_run import RecordingReporter
from whetstone_agent.fetching import main, teller
from whetstone_api.jobs import EXIT_STOPPED, EXIT_USER_ERROR, BenchmarkConfig, RunConfig, ToolUseConfig
from whetstone_api.reports import Outcome, ProgressReport, TerminationReport
from whetstone_api.run_artifact import FetchRecord
from whetstone_artifacts.tasks.folder import read_task, task_folders, tasks_digest
from whetstone_artifacts.tasks.sets import folder_digest

SET = "hf://datasets/team/sets@main"
OTHER = "sha256:" + "0" * 64


@pytest.fixture
def hub(tmp_path: Path, dataset: Path) -> Iterator[Served]:
    """A hub with the data set `team/sets`."""
    shutil.copytree(dataset, tmp_path / "hub" / "team" / "sets")
    with hub_server(tmp_path / "hub") as served:
        yield served


@pytest.fixture
def keys(tmp_path: Path, hub: Served) -> Path:
    """What the Secret of the hub holds."""
    folder = tmp_path / "secret"
    folder.mkdir()
    (folder / "HF_ENDPOINT").write_text(hub.url)
    return folder


@pytest.fixture
def wanted(tmp_path: Path, keys: Path) -> dict[str, Any]:
    """A task set of the hub."""
    return {
        "what": "Tasks",
        "path": str(tmp_path / "pod" / "set"),
        "field": f"spec.suite.harbor.dataset ({SET})",
        "uri": SET,
        "secretPath": str(keys),
        "recordPath": str(tmp_path / "results" / "sources" / "job-tasks.json"),
    }


Fetch = Callable[..., tuple[int, TerminationReport | None]]


@pytest.fixture
def fetch(tmp_path: Path, configure: Callable[..., BenchmarkConfig]) -> Fetch:
    """Run the program in a pod of its own; return its exit code, and what it tells of a failure."""

    def run(*folders: dict[str, Any]) -> tuple[int, TerminationReport | None]:
        shutil.rmtree(tmp_path / "pod", ignore_errors=True)
        (tmp_path / "config.json").write_text(configure(fetched=list(folders)).to_json())
        told = tmp_path / "termination"
        told.unlink(missing_ok=True)
        code = main(["--config", str(tmp_path / "config.json"), "--termination", str(told)])
        return code, TerminationReport.model_validate_json(told.read_bytes()) if told.exists() else None

    return run


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """The program is a process of its own elsewhere; here it must leave the signals as they were."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def digest_of(folder: Path) -> str:
    return tasks_digest({path.name: read_task(path).digest for path in task_folders(folder)})


def refused(answer: tuple[int, TerminationReport | None]) -> TerminationReport:
    code, report = answer
    assert report is not None
    assert code == (EXIT_USER_ERROR if report.outcome is Outcome.FAILED else 1)
    return report


def test_a_set_arrives_and_its_commit_is_recorded(fetch: Fetch, wanted: dict[str, Any], dataset: Path) -> None:
    assert fetch({**wanted, "digest": digest_of(dataset)}) == (0, None)
    assert digest_of(Path(wanted["path"])) == digest_of(dataset)
    record = FetchRecord.model_validate_json(Path(wanted["recordPath"]).read_bytes())
    assert record.resolved == f"hf://datasets/team/sets@{COMMIT}"
    assert record.digest == folder_digest(Path(wanted["path"]))


def test_a_branch_that_moves_is_followed_by_no_later_pod(
    fetch: Fetch, wanted: dict[str, Any], hub: Served, tmp_path: Path
) -> None:
    assert fetch(wanted) == (0, None)
    hub.asked.clear()
    assert fetch(wanted) == (0, None)
    assert f"/api/datasets/team/sets/revision/{COMMIT}" in {one.path for one in hub.asked}
    assert [one.path for one in hub.asked if one.path.endswith("main")] == []


def test_a_place_whose_content_changes_is_refused_until_another_attempt(
    fetch: Fetch, wanted: dict[str, Any], tmp_path: Path
) -> None:
    assert fetch(wanted) == (0, None)
    write_task(tmp_path / "hub" / "team" / "sets", "task-9")
    report = refused(fetch(wanted))
    assert (report.outcome, report.reason) == (Outcome.FAILED, "DigestMismatch")
    assert report.message.startswith(wanted["field"])
    assert "whetstone.dev/retry-requested-at" in report.message
    assert fetch({**wanted, "recordPath": wanted["recordPath"] + ".retry"}) == (0, None)


def test_a_killed_first_pod_leaves_the_commit_and_no_digest(fetch: Fetch, wanted: dict[str, Any], hub: Served) -> None:
    hub.breaks_after = 0
    assert refused(fetch(wanted)).outcome is Outcome.RETRY
    record = FetchRecord.model_validate_json(Path(wanted["recordPath"]).read_bytes())
    assert (record.resolved, record.digest) == (f"hf://datasets/team/sets@{COMMIT}", None)
    hub.breaks_after = None
    assert fetch(wanted) == (0, None)


def test_what_is_wrong_is_told_and_not_tried_again(
    fetch: Fetch, wanted: dict[str, Any], hub: Served, tmp_path: Path
) -> None:
    cases = [
        ({"digest": OTHER}, "DigestMismatch", OTHER),
        ({"uri": "hf://datasets/team/none@main"}, "SourceNotFound", "hf://datasets/team/none@main"),
        ({"uri": f"{SET}/task-0/tests"}, "TasksInvalid", "no Harbor tasks"),
        ({"secretPath": str(tmp_path / "none")}, "SecretNotFound", "secretRef"),
    ]
    for number, (changes, reason, words) in enumerate(cases):
        report = refused(fetch({**wanted, **changes, "recordPath": f"{wanted['recordPath']}-{number}"}))
        assert (report.outcome, report.reason) == (Outcome.FAILED, reason), report.message
        assert report.message.startswith(wanted["field"])
        assert words in report.message
    hub.authorization = "Bearer key"
    report = refused(fetch({**wanted, "recordPath": wanted["recordPath"] + "-key"}))
    assert (report.outcome, report.reason) == (Outcome.FAILED, "SourceForbidden")


def test_a_place_that_does_not_answer_is_tried_again(fetch: Fetch, wanted: dict[str, Any], keys: Path) -> None:
    report = refused(fetch({**wanted, "uri": "https://127.0.0.1:9/set.tar", "secretPath": None}))
    assert (report.outcome, report.reason) == (Outcome.RETRY, "SourceUnreachable")


def packed(folder: Path, file: Path) -> Path:
    with tarfile.open(file, "w:gz") as stream:
        stream.add(folder, arcname="set")
    return file


def test_an_archive_that_is_there_is_unpacked_and_pinned(
    fetch: Fetch, wanted: dict[str, Any], dataset: Path, tmp_path: Path
) -> None:
    archive = {**wanted, "uri": None, "secretPath": None, "archivePath": str(packed(dataset, tmp_path / "set.tgz"))}
    assert fetch(archive) == (0, None)
    assert digest_of(Path(wanted["path"])) == digest_of(dataset)
    (dataset / "task-0" / "instruction.md").write_text("Something else.\n")
    packed(dataset, tmp_path / "set.tgz")
    assert refused(fetch(archive)).reason == "DigestMismatch"


def test_the_code_of_an_agent_arrives_and_is_held_to_its_digest(
    fetch: Fetch, wanted: dict[str, Any], tmp_path: Path
) -> None:
    code = tmp_path / "hub" / "team" / "agent"
    code.mkdir()
    (code / "mine.py").write_text("class Agent: ...\n")
    agent = {**wanted, "what": "Agent", "uri": "hf://datasets/team/agent@main"}
    assert fetch(agent) == (0, None)
    assert (Path(agent["path"]) / "mine.py").read_text() == "class Agent: ...\n"
    assert fetch({**agent, "digest": folder_digest(code)}) == (0, None)
    assert refused(fetch({**agent, "digest": OTHER})).reason == "DigestMismatch"


def test_an_environment_of_questions_arrives_by_the_configuration_of_its_run(
    wanted: dict[str, Any], configure: Callable[..., BenchmarkConfig], tmp_path: Path
) -> None:
    world = tmp_path / "hub" / "team" / "company"
    (world / "collections").mkdir(parents=True)
    (world / "collections" / "handbook.jsonl").write_text("{}\n")
    place = {**wanted, "what": "Environment", "uri": "hf://datasets/team/company@main", "digest": folder_digest(world)}
    common = RunConfig.model_validate(dict(configure(fetched=[place])))
    suite = {"environment": {"uri": place["uri"]}, "instances": {"file": "test.json"}}
    config = ToolUseConfig(**dict(common), tool_use=suite, environment_path=place["path"])
    (tmp_path / "config.json").write_text(config.to_json())
    assert main(["--config", str(tmp_path / "config.json"), "--termination", str(tmp_path / "t")]) == 0
    assert folder_digest(Path(place["path"])) == place["digest"]


def test_how_much_has_arrived_is_reported(
    fetch: Fetch, wanted: dict[str, Any], dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[ProgressReport] = []

    class Recording:
        def __init__(self, *, url: str) -> None:
            assert url == "http://127.0.0.1:9/none"

        def send(self, report: ProgressReport) -> None:
            reports.append(report)

        def close(self) -> None:
            reports.append(ProgressReport(phase="closed"))

    monkeypatch.setattr("whetstone_agent.fetching.Reporter", Recording)
    assert fetch(wanted) == (0, None)
    size = sum(path.stat().st_size for path in dataset.rglob("*") if path.is_file())
    assert {report.phase for report in reports[:-1]} == {"Fetching"}
    assert (reports[0].fetched_bytes, reports[0].total_bytes) == (None, None)
    assert (reports[-2].fetched_bytes, reports[-2].total_bytes) == (size, size)
    assert reports[-1].phase == "closed"


@pytest.mark.parametrize(
    ("shards", "index", "digest", "tells"),
    [(1, "0", None, True), (1, "0", OTHER, True), (2, "0", None, True), (2, "0", OTHER, False), (2, "1", None, False)],
)
def test_of_several_pods_one_reports_until_others_may_be_at_work(
    configure: Callable[..., BenchmarkConfig],
    wanted: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    shards: int,
    index: str,
    digest: str | None,
    tells: bool,
) -> None:
    monkeypatch.setenv("JOB_COMPLETION_INDEX", index)
    record = Path(wanted["recordPath"])
    record.parent.mkdir(parents=True)
    record.write_text(FetchRecord(uri=SET, resolved=SET, digest=digest).to_json())
    config, told = configure(fetched=[wanted], shards=shards), RecordingReporter()
    teller(config, config.fetched[0], told)(3, 9)  # type: ignore[arg-type]
    assert [(one.fetched_bytes, one.total_bytes) for one in told.reports] == ([(3, 9)] if tells else [])


def test_a_config_that_cannot_be_read_is_a_user_error(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    arguments = ["--config", str(tmp_path / "config.json"), "--termination", str(tmp_path / "t")]
    assert main(arguments) == EXIT_USER_ERROR


class Silent(BaseHTTPRequestHandler):
    """A hub that takes a request and never answers."""

    asked = threading.Event()
    over = threading.Event()

    def do_GET(self) -> None:
        self.asked.set()
        self.over.wait(120)


def test_sigterm_ends_a_fetch_that_waits_for_a_server_at_once(
    configure: Callable[..., BenchmarkConfig], wanted: dict[str, Any], keys: Path, tmp_path: Path
) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Silent)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (keys / "HF_ENDPOINT").write_text(f"http://127.0.0.1:{server.server_port}")
    (tmp_path / "config.json").write_text(configure(fetched=[wanted]).to_json())
    command = [sys.executable, "-m", "whetstone_agent.fetching", "--config", str(tmp_path / "config.json")]
    process = subprocess.Popen(
        [*command, "--termination", str(tmp_path / "termination")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert Silent.asked.wait(60)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == EXIT_STOPPED
    finally:
        process.kill()
        Silent.over.set()
        server.shutdown()
        server.server_close()
    assert json.loads((tmp_path / "termination").read_text())["outcome"] == "Retry"
    assert not Path(wanted["path"]).exists()
