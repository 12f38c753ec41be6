"""Datasets from outside the cluster: fetched once, held to their digest, Parquet as well as JSON lines."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.place_servers import Served, hub_server
from support.trainer_job import Job, chat_row
from whetstone_api.jobs import EXIT_USER_ERROR
from whetstone_trainer.__main__ import EXIT_RETRY

pytestmark = pytest.mark.torch
URI = "hf://datasets/team/rows@main/data/{}"
FIELD = "spec.datasets[0].source.uri (hf)"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Served]:
    with hub_server(tmp_path / "hub") as served:
        yield served


def far(job: Job, hub: Served, name: str, rows: list[dict[str, Any]]) -> Path:
    """Put rows on the hub and let the job fetch them; return the file there."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = job.folder.parent / "hub/team/rows/data" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows), file)
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    secret = job.folder / "secret"
    secret.mkdir(exist_ok=True)
    (secret / "HF_ENDPOINT").write_text(hub.url)
    path = str(job.workspace / "datasets" / f"train{file.suffix}")
    source = {"uri": URI.format(name), "secretPath": str(secret), "path": path, "field": FIELD}
    job.values["datasets"] = [{"name": "train", **source}]
    return file


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet"])
def test_rows_are_fetched_once_and_their_digest_recorded(job: Job, hub: Served, name: str) -> None:
    plain = chat_row("q", "a", task="t")
    file = far(job, hub, name, [plain, {"messages": plain["messages"], "tools": None}])
    digest = "sha256:" + hashlib.sha256(file.read_bytes()).hexdigest()
    job.values["datasets"][0]["digest"] = digest
    assert job.run("prepare") == 0, job.log
    assert job.report.result["dataset"]["read"] == 2
    report = json.loads((job.workspace / "prepared" / "report.json").read_bytes())
    assert report["datasets"] == [{"name": "train", "digest": digest, "rows": 1}]
    file.unlink()
    assert job.run("prepare") == 0, job.log


def test_file_with_another_digest_is_refused_and_not_kept(job: Job, hub: Served) -> None:
    far(job, hub, "rows.jsonl", [chat_row("q", "a")])
    job.values["datasets"][0]["digest"] = "sha256:" + "0" * 64
    assert job.run("prepare") == EXIT_USER_ERROR
    assert job.report.reason == "DigestMismatch"
    assert job.report.message.startswith(f"{FIELD}: digest: ")
    assert not Path(job.values["datasets"][0]["path"]).exists()


def test_digest_of_a_file_that_is_there_is_checked_too(job: Job) -> None:
    job.values["datasets"][0]["digest"] = "sha256:" + "0" * 64
    assert job.run("prepare") == EXIT_USER_ERROR
    assert job.report.reason == "DigestMismatch"


def test_place_that_does_not_answer_is_tried_again(job: Job, hub: Served) -> None:
    far(job, hub, "rows.jsonl", [chat_row("q", "a")])
    hub.answers["/api/datasets/team/rows/revision/main"] = 503
    assert job.run("prepare") == EXIT_RETRY
    assert job.report.reason == "SourceUnreachable"


def test_several_processes_fetch_before_they_read(job: Job, hub: Served) -> None:
    far(job, hub, "rows.jsonl", [chat_row("q", "a")])
    hub.answers["/api/datasets/team/rows/revision/main"] = 503
    job.values["world"] = {"nodes": 1, "processesPerNode": 2, "strategy": "DDP"}
    assert job.run("train") == EXIT_RETRY
    assert job.report.reason == "SourceUnreachable"


def test_file_that_is_no_parquet_is_refused(job: Job, hub: Served) -> None:
    far(job, hub, "rows.parquet", [chat_row("q", "a")]).write_text("no")
    assert job.run("prepare") == EXIT_USER_ERROR
    assert job.report.reason == "DatasetInvalid"
    assert job.report.message.startswith(f"{FIELD}: after row 0, is not Parquet")
