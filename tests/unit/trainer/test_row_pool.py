"""Rows that several processes render: the same as of one, the first fault told, and a killed process named."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.trainer_job import FIELD, ROOT, Job, chat_row
from whetstone_trainer.errors import UserError
from whetstone_trainer.prepare import prepare_data
from whetstone_trainer.prepared import PREPARED_FOLDER
from whetstone_trainer.recipe import read_recipe
from whetstone_trainer.row_pool import AHEAD, BYTES_A_PROCESS, MEMORY_EACH, MEMORY_FIRST, Beside, worthwhile
from whetstone_trainer.row_work import RowWork

pytestmark = pytest.mark.torch
TELLS_OF_TORCH = """
import sys


class Finder:
    def find_spec(self, name, *_):
        if name == "torch":
            print("torch is looked for", flush=True)


sys.meta_path.insert(0, Finder())
"""
"""A `sitecustomize` that every process of a program begins with."""


def varied(job: Job, count: int = 400, **more: str) -> None:
    """Give a job rows of which each goes another way: held out, drawn, filtered, cut, the same as another."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [
        {
            **chat_row(f"q{number % 300}", f"a{number}" * (1 + number % 120), task=f"t{number % 90}", **more),
            "reward": number % 5,
        }
        for number in range(count)
    ]
    rows[7]["messages"] = rows[8]["messages"]
    job.write(rows)
    columns = job.folder / "more.parquet"
    pq.write_table(pa.Table.from_pylist([chat_row(f"p{number}", "answer") for number in range(150)]), columns)
    job.values["datasets"][0] |= {"weight": "1.5", "filter": {"minimumReward": "1"}}
    job.values["datasets"].append({"name": "more", "path": str(columns), "field": FIELD, "weight": "0.5"})
    job.values["evaluation"] = {"share": "0.2"}
    job.values["preparation"] = {"tooLong": "Truncate", "maximumTooLong": "1"}


def prepared_files(job: Job, processes: int) -> dict[str, bytes]:
    prepare_data(job.config, read_recipe(job.config), processes=processes)
    return taken_away(job, f"by-{processes}")


def taken_away(job: Job, name: str) -> dict[str, bytes]:
    """Return what is prepared, so that it is prepared anew."""
    place = job.workspace / PREPARED_FOLDER
    files = {path.name: path.read_bytes() for path in place.iterdir()}
    place.rename(job.folder / f"prepared-{name}")
    return files


def test_files_are_the_same_whatever_the_number_of_processes(job: Job) -> None:
    varied(job)
    alone = prepared_files(job, 1)
    report = json.loads(alone["report.json"])["dataset"]
    for gone in ("filtered", "undrawn", "duplicates", "truncated"):
        assert report[gone], gone
    assert report["evaluation"]["rows"]
    for processes in (2, 3):
        assert prepared_files(job, processes) == alone


def test_program_prepares_the_same_without_torch_in_any_of_its_processes(job: Job) -> None:
    varied(job, note="x" * (2 * BYTES_A_PROCESS // 300))
    (job.folder / "sitecustomize.py").write_text(TELLS_OF_TORCH)
    roots = [job.folder, *(ROOT / part for part in ("operator", "trainer")), os.environ.get("PYTHONPATH", "")]
    assert job.run("prepare", PYTHONPATH=os.pathsep.join(map(str, roots))) == 0, job.log
    assert "2 processes render the rows" in job.log
    assert "torch" not in job.log
    without = taken_away(job, "without-torch")
    assert prepared_files(job, 1) == without
    assert "torch" in sys.modules


@pytest.mark.parametrize("processes", [1, 2])
def test_first_fault_in_the_order_of_the_rows_is_told(job: Job, processes: int) -> None:
    lines = [json.dumps(chat_row(f"q{number}", "a")) for number in range(600)]
    lines[333], lines[590] = '{"messages": []}', "{not json"
    job.data.write_text("\n".join(lines))
    recipe = read_recipe(job.config)
    job.values["datasets"].append({"name": "gone", "path": str(job.folder / "gone.jsonl"), "field": FIELD})
    with pytest.raises(UserError, match="row 334: `messages` must be a list that is not empty"):
        prepare_data(job.config, recipe, processes=processes)


def test_killed_process_is_told_and_the_next_attempt_goes_through(job: Job) -> None:
    # What no row has to say makes the file worth two processes.
    job.write([chat_row(f"q{number}", "a", note="x" * (2 * BYTES_A_PROCESS // 60)) for number in range(70)])
    assert job.run("prepare", WHETSTONE_FAILPOINT="while-rendering") == 75
    assert job.report.outcome == "Retry"
    assert "a process that renders rows was killed from outside" in job.report.message
    assert "limits.memory of spec.resources" in job.report.message
    assert prepare_data(job.config, read_recipe(job.config)).dataset.rows == 70


def test_rows_are_read_only_a_little_ahead(job: Job) -> None:
    job.write([chat_row(f"q{number}", "a") for number in range(3000)])
    config, begun = job.config, 0

    def tasks() -> Iterator[tuple[Any, ...]]:
        nonlocal begun
        from whetstone_artifacts.data.lines import read_chunks

        for chunk in read_chunks(job.data):
            begun += 1
            yield 0, chunk

    with Beside(config, read_recipe(config).settings, processes=2) as processes:
        for done, _ in enumerate(processes.map(RowWork.numbers, tasks()), start=1):
            assert begun - done <= 2 * AHEAD
    assert done == begun == 47


@pytest.mark.parametrize(
    ("size", "cpus", "memory", "processes"),
    [
        (100 * BYTES_A_PROCESS, 16, None, 16),
        (100 * BYTES_A_PROCESS, 1, None, 1),
        (3 * BYTES_A_PROCESS, 16, None, 3),
        (10, 16, None, 1),
        (100 * BYTES_A_PROCESS, 16, MEMORY_FIRST + 3 * MEMORY_EACH, 4),
        (100 * BYTES_A_PROCESS, 16, MEMORY_FIRST // 2, 1),
    ],
    ids=["each CPU", "one CPU", "short data", "no data", "memory for four", "little memory"],
)
def test_processes_are_as_many_as_pay_and_fit(size: int, cpus: int, memory: int | None, processes: int) -> None:
    assert worthwhile(size, cpus=cpus, memory=memory) == processes


def test_cpus_and_memory_are_those_of_the_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from whetstone_trainer import cpus

    monkeypatch.setattr(cpus, "CONTROL_GROUP", tmp_path)
    monkeypatch.setattr(cpus.os, "sched_getaffinity", lambda _: set(range(16)))
    assert (cpus.available_cpus(), cpus.memory_limit()) == (16, None)
    (tmp_path / "memory").mkdir()
    for text, limit in (("2147483648\n", 2 << 30), ("9223372036854771712\n", None)):
        (tmp_path / "memory" / "memory.limit_in_bytes").write_text(text)
        assert cpus.memory_limit() == limit
    (tmp_path / "cpu.max").write_text("250000 100000\n")
    (tmp_path / "memory.max").write_text("4294967296\n")
    assert (cpus.available_cpus(), cpus.memory_limit()) == (3, 4 << 30)
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert (cpus.available_cpus(), cpus.memory_limit()) == (16, None)
