"""Rows held out for the evaluation: whole tasks, the same for the same seed, never learned."""

from collections.abc import Sequence
from typing import Any

import pytest
from support.trainer_job import FIELD, Job, chat_row
from whetstone_api.jobs import EXIT_USER_ERROR
from whetstone_trainer.prepare import prepare_data
from whetstone_trainer.prepared import EVALUATION_FILE, PREPARED_FOLDER, ROWS_FILE, PreparedReport
from whetstone_trainer.recipe import read_recipe

pytestmark = pytest.mark.torch


def prepare(job: Job) -> PreparedReport:
    return prepare_data(job.config, read_recipe(job.config))


def questions(job: Job, file: str) -> list[str]:
    """The questions of a file's rows, as the tokenizer of single bytes reads them."""
    import pyarrow as pa
    from support.trainer_job import byte_tokenizer

    with pa.memory_map(str(job.workspace / PREPARED_FOLDER / file)) as source:
        rows = pa.ipc.open_stream(source).read_all().to_pylist()
    tokenizer = byte_tokenizer()
    texts = [tokenizer.decode(row["input_ids"]) for row in rows]
    return [text.split("user\n")[1].split("<|im_end|>")[0] for text in texts]


def task_rows(tasks: Sequence[int]) -> list[dict[str, Any]]:
    return [chat_row(f"{task}-{number}", "a", task=f"t{task}") for number, task in enumerate(tasks)]


def test_whole_tasks_are_held_out_until_they_have_the_share(job: Job) -> None:
    job.write(task_rows([number % 20 for number in range(100)]))
    job.values["evaluation"] = {"share": "0.12"}
    report = prepare(job)
    held, learned = questions(job, EVALUATION_FILE), questions(job, ROWS_FILE)
    tasks = [{question.split("-")[0] for question in side} for side in (held, learned)]
    assert not tasks[0] & tasks[1]
    assert len(held) == 15
    assert len(learned) == report.dataset.rows == 85
    assert report.dataset.evaluation is not None
    assert report.dataset.evaluation.rows == 15
    assert report.dataset.evaluation.loss_tokens == 15 * 2
    assert set(report.task_digests) == {f"t{task}" for task in tasks[1]}
    assert [one.rows for one in report.datasets] == [85]


def test_split_follows_the_seed_and_nothing_else(job: Job) -> None:
    job.write([chat_row(f"q{number}", "a") for number in range(50)])
    job.values["evaluation"] = {"share": "0.2"}
    prepare(job)
    first = questions(job, EVALUATION_FILE)
    job.values["hyperparameters"]["epochs"] = 1
    prepare(job)
    assert questions(job, EVALUATION_FILE) == first
    job.values["hyperparameters"]["seed"] = 1
    prepare(job)
    other = questions(job, EVALUATION_FILE)
    assert len(first) == len(other) == 10
    assert first != other


def test_rows_of_the_evaluation_dataset_are_not_learned(job: Job) -> None:
    test = job.folder / "test.jsonl"
    learned = job.data.read_text()
    job.write([chat_row("q0", "a0a0a0", task="sha256:0"), chat_row("held", "a", task="sha256:held")])
    job.data.rename(test)
    job.data.write_text(learned)
    job.values["datasets"].append({"name": "test", "path": str(test), "field": FIELD.replace("0", "1")})
    plain = read_recipe(job.config).digest
    job.values["evaluation"] = {"dataset": "test"}
    report = prepare(job)
    assert questions(job, EVALUATION_FILE) == ["held"]
    assert (report.dataset.rows, report.dataset.duplicates) == (12, 1)
    assert [(one.name, one.rows) for one in report.datasets] == [("train", 12), ("test", 0)]
    assert "sha256:held" not in report.task_digests
    assert report.recipe_digest != plain


def test_without_evaluation_there_is_no_file_and_the_recipe_is_as_before(job: Job) -> None:
    prepare(job)
    assert not (job.workspace / PREPARED_FOLDER / EVALUATION_FILE).exists()
    assert "evaluation" not in read_recipe(job.config).content


def test_share_that_leaves_nothing_to_learn_is_refused(job: Job) -> None:
    job.write(task_rows([1, 1, 1]))
    job.values["evaluation"] = {"share": "0.1"}
    assert job.run("prepare") == EXIT_USER_ERROR
    assert job.report.reason == "InvalidSpec"
    assert job.report.message.startswith("spec.evaluation.share is 0.1: it would hold out all 3 rows")


def test_evaluation_on_copies_of_what_is_learned_is_refused(job: Job) -> None:
    job.values["datasets"].append({**job.values["datasets"][0], "name": "test"})
    job.values["evaluation"] = {"dataset": "test"}
    assert job.run("prepare") == EXIT_USER_ERROR
    assert job.report.reason == "DatasetTooSmall"
    assert "no row is left to evaluate on" in job.report.message
