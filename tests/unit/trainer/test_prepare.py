"""Prepare: masked rows in Arrow with a report, made once a recipe."""

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.trainer_job import FIELD, SMOLLM2_TEMPLATE, Job, byte_tokenizer, chat_row
from whetstone_api.jobs import EXIT_USER_ERROR
from whetstone_trainer.errors import UserError
from whetstone_trainer.prepare import prepare_data
from whetstone_trainer.prepared import PREPARED_FOLDER, REPORT_FILE, ROWS_FILE
from whetstone_trainer.recipe import read_recipe

pytestmark = pytest.mark.torch


def prepared_rows(job: Job) -> list[dict[str, Any]]:
    import pyarrow as pa

    with pa.memory_map(str(job.workspace / PREPARED_FOLDER / ROWS_FILE)) as source:
        rows: list[dict[str, Any]] = pa.ipc.open_stream(source).read_all().to_pylist()
    return rows


def test_report_counts_rows_tokens_and_tasks(job: Job) -> None:
    report = prepare_data(job.config, read_recipe(job.config))
    rows = prepared_rows(job)
    assert report.dataset.rows == len(rows) == 12
    assert report.dataset.tokens == sum(len(row["input_ids"]) for row in rows)
    assert report.dataset.loss_tokens == sum(label != -100 for row in rows for label in row["labels"])
    assert report.dataset.longest == max(len(row["input_ids"]) for row in rows)
    assert report.task_digests == ["sha256:0", "sha256:1", "sha256:2", "sha256:3"]
    assert [(d.name, d.rows) for d in report.datasets] == [("train", 12)]
    learned = ["".join(part.text for part in sample.segments if part.learned) for sample in report.samples]
    assert learned == ["a0a0a0<|im_end|>", "a1a1a1<|im_end|>", "a2a2a2<|im_end|>"]


def test_rows_that_are_the_same_are_trained_on_once(job: Job) -> None:
    short, other, long = chat_row("q", "a"), chat_row("q", "b"), chat_row("q" * 150, "a")
    job.write(
        [short, other, short, {"messages": short["messages"], "task": "sha256:1"}, *[chat_row("r", "a")] * 2, long]
    )
    report = prepare_data(job.config, read_recipe(job.config))
    assert (report.dataset.rows, report.dataset.duplicates) == (4, 3)
    assert len(prepared_rows(job)) == 4
    assert [one.rows for one in report.datasets] == [4]
    assert report.task_digests == ["sha256:1"]


def test_report_has_the_lengths_of_rows(job: Job) -> None:
    job.write([chat_row("q" * number, "a") for number in range(1, 101)])
    report = prepare_data(job.config, read_recipe(job.config)).dataset
    assert report.lengths is not None
    least = report.longest - 99
    found = (report.lengths.p50, report.lengths.p90, report.lengths.p99)
    assert found == (least + 49, least + 89, least + 98)


def test_report_keeps_starts_of_conversations_as_the_template_rendered_them(job: Job) -> None:
    long, short = chat_row("q" * 200, "a"), chat_row("how?", "so")
    job.write([short, short, long])
    report = prepare_data(job.config, read_recipe(job.config))
    tokenizer = byte_tokenizer()
    asked = [[(one["role"], one["content"]) for one in case.messages] for case in report.templates]
    assert asked == [[("system", "s"), ("user", "how?")], [("system", "s"), ("user", "q" * 200)]]
    for case in report.templates:
        rendered = tokenizer.apply_chat_template(case.messages, tokenize=False, add_generation_prompt=True)
        assert case.token_ids == tokenizer(rendered, add_special_tokens=False)["input_ids"]


def test_last_turn_alone_is_learned_where_the_job_says_so(job: Job) -> None:
    row = {"messages": chat_row("q", "first")["messages"] + chat_row("r", "last")["messages"][1:]}
    job.write([row])
    whole = read_recipe(job.config)
    assert prepare_data(job.config, whole).samples[0].segments[1].text == "first<|im_end|>"
    job.values["loss"] = {"target": "LastTurn"}
    recipe = read_recipe(job.config)
    report = prepare_data(job.config, recipe)
    assert [part.text for part in report.samples[0].segments if part.learned] == ["last<|im_end|>"]
    assert [one["content"] for one in report.templates[0].messages] == ["s", "q", "first", "r"]
    assert recipe.digest != whole.digest


@pytest.mark.parametrize("mark", [{"suboptimal": True}, {"weight": 0}], ids=["suboptimal", "weight"])
def test_marked_turns_are_left_out_where_the_job_says_so(job: Job, mark: dict[str, Any]) -> None:
    first, last = chat_row("q", "bad")["messages"], chat_row("r", "good")["messages"][1:]
    job.write([{"messages": [*first[:-1], {**first[-1], **mark}, *last]}])
    plain = read_recipe(job.config)
    assert plain.content["loss"] == {"target": "Assistant"}
    assert len([part for part in prepare_data(job.config, plain).samples[0].segments if part.learned]) == 2
    job.values["loss"] = {"maskSuboptimal": True}
    recipe = read_recipe(job.config)
    report = prepare_data(job.config, recipe)
    assert [part.text for part in report.samples[0].segments if part.learned] == ["good<|im_end|>"]
    assert recipe.digest != plain.digest
    assert all("suboptimal" not in message for message in report.templates[0].messages)


def test_all_tokens_are_learned_where_the_job_says_so(job: Job) -> None:
    job.write([chat_row("q", "a")])
    job.values["loss"] = {"target": "All"}
    report = prepare_data(job.config, read_recipe(job.config))
    assert report.dataset.loss_tokens == report.dataset.tokens - 1
    assert report.templates[0].messages[-1]["content"] == "q"
    assert byte_tokenizer().decode(report.templates[0].token_ids).endswith("<|im_start|>assistant\n")


def test_row_of_marked_turns_alone_is_refused(job: Job) -> None:
    row = chat_row("q", "bad")
    row["messages"][-1]["suboptimal"] = True
    job.write([row])
    job.values["loss"] = {"maskSuboptimal": True}
    with pytest.raises(UserError, match=r"row 1: has no token to learn; write an answer .* that is not marked"):
        prepare_data(job.config, read_recipe(job.config))


def test_conversation_becomes_a_row_a_turn_where_the_template_rewrites_earlier_turns(
    job: Job, model_folder: Path
) -> None:
    base = job.folder / "rewriting"
    shutil.copytree(model_folder, base)
    kept = "(message['content'] if loop.last or message['role'] != 'assistant' else 'gone')"
    (base / "chat_template.jinja").write_text(SMOLLM2_TEMPLATE.replace("message['content']", kept))
    job.values["baseModelPath"] = str(base)
    long = {"messages": chat_row("q", "first")["messages"] + chat_row("r", "last")["messages"][1:], "task": "sha256:1"}
    job.write([long, chat_row("q", "alone")])
    report = prepare_data(job.config, read_recipe(job.config))
    assert (report.dataset.rows, report.dataset.split_rows) == (3, 1)
    tokenizer = byte_tokenizer()
    texts = [tokenizer.decode(row["input_ids"]) for row in prepared_rows(job)]
    assert [text.count("gone") for text in texts] == [0, 1, 0]
    learned = [tokenizer.decode([one for one in row["labels"] if one != -100]) for row in prepared_rows(job)]
    assert learned == ["first<|im_end|>", "last<|im_end|>", "alone<|im_end|>"]
    assert report.task_digests == ["sha256:1"]


def test_prepared_data_of_the_same_recipe_is_used_again(job: Job) -> None:
    recipe = read_recipe(job.config)
    prepare_data(job.config, recipe)
    file = job.workspace / PREPARED_FOLDER / ROWS_FILE
    first = file.stat().st_ino
    prepare_data(job.config, recipe)
    assert file.stat().st_ino == first


def test_damaged_or_other_prepared_data_is_made_again(job: Job) -> None:
    prepare_data(job.config, read_recipe(job.config))
    file = job.workspace / PREPARED_FOLDER / ROWS_FILE
    file.write_bytes(file.read_bytes()[:-100])
    prepare_data(job.config, read_recipe(job.config))
    assert len(prepared_rows(job)) == 12
    job.write([chat_row("q", "a")])
    prepare_data(job.config, read_recipe(job.config))
    assert len(prepared_rows(job)) == 1


def test_prepare_ends_with_a_report(job: Job) -> None:
    assert job.run("prepare") == 0
    assert job.report.outcome == "Succeeded"
    assert job.report.result["dataset"]["rows"] == 12


def test_row_longer_than_the_limit_is_refused(job: Job) -> None:
    job.write([chat_row("q", "a"), chat_row("q", "a" * 300)])
    assert job.run("prepare") == EXIT_USER_ERROR
    assert job.report.reason == "DatasetTooLong"
    assert job.report.message.startswith(f"{FIELD}, row 2: has 333 tokens")
    assert "the limit is 256" in job.report.message


def test_longer_rows_are_dropped_where_the_job_says_so(job: Job) -> None:
    job.write([chat_row("q", "a"), chat_row("r", "a" * 300), chat_row("s", "a")])
    strict = read_recipe(job.config)
    job.values["preparation"] = {"tooLong": "Drop", "maximumTooLong": "0.5"}
    recipe = read_recipe(job.config)
    report = prepare_data(job.config, recipe).dataset
    assert (report.read, report.rows, report.dropped, report.truncated) == (3, 2, 1, 0)
    assert recipe.digest != strict.digest


def test_longer_rows_lose_their_end_where_the_job_says_so(job: Job) -> None:
    learned, all_context = chat_row("r", "a" * 300), chat_row("q" * 300, "a")
    job.write([chat_row("q", "a"), learned, all_context])
    job.values["preparation"] = {"tooLong": "Truncate", "maximumTooLong": "1"}
    report = prepare_data(job.config, read_recipe(job.config))
    rows = prepared_rows(job)
    assert [len(row["input_ids"]) for row in rows] == [34, 256]
    start = len(rows[1]["labels"]) - sum(label != -100 for label in rows[1]["labels"])
    assert rows[1]["labels"][start:] == rows[1]["input_ids"][start:]
    assert report.samples[1].segments[-1].text == "a" * (256 - start)
    assert (report.dataset.dropped, report.dataset.truncated, report.dataset.truncated_share) == (1, 1, "0.3333")
    assert any("1 rows lost their end" in one for one in report.dataset.advice or [])


@pytest.mark.parametrize("way", ["Drop", "Truncate"])
def test_as_many_long_rows_as_allowed_are_taken(job: Job, way: str) -> None:
    job.write([chat_row(f"q{number}", "a") for number in range(3)] + [chat_row("r", "a" * 300)])
    job.values["preparation"] = {"tooLong": way, "maximumTooLong": "0.25"}
    report = prepare_data(job.config, read_recipe(job.config)).dataset
    assert report.dropped + report.truncated == 1
    shutil.rmtree(job.workspace)
    job.values["preparation"]["maximumTooLong"] = "0.24"
    with pytest.raises(UserError, match=r"1 of 4 rows are longer .* spec.preparation.maximumTooLong is 0\.24") as told:
        prepare_data(job.config, read_recipe(job.config))
    assert told.value.reason == "DatasetTooLong"


def test_more_long_rows_than_allowed_are_refused(job: Job) -> None:
    job.write([chat_row(f"q{number}", "a") for number in range(8)] + [chat_row("r", "a" * 300)])
    job.values["preparation"] = {"tooLong": "Drop"}
    assert job.run("prepare") == EXIT_USER_ERROR
    assert job.report.reason == "DatasetTooLong"
    assert "1 of 9 rows are longer" in job.report.message
    assert "spec.preparation.maximumTooLong is 0.1" in job.report.message


def test_too_few_rows_are_refused_also_where_data_is_prepared(job: Job) -> None:
    job.write([chat_row("q", "a"), chat_row("q", "a"), chat_row("r", "a")])
    job.values["preparation"] = {"minimumRows": 2}
    recipe = read_recipe(job.config)
    prepare_data(job.config, recipe)
    job.values["preparation"]["minimumRows"] = 3
    assert read_recipe(job.config).digest == recipe.digest
    assert job.run("prepare") == EXIT_USER_ERROR
    assert job.report.reason == "DatasetTooSmall"
    assert job.report.message.startswith("spec.datasets: 2 rows are left to learn from, of 3 read (1 duplicates);")


def test_longest_row_decides_the_length_where_none_is_asked(job: Job) -> None:
    job.write([chat_row("q", "a" * 40), chat_row("q", "a")])
    report = prepare_data(job.config, read_recipe(job.config)).dataset
    assert (report.longest, report.max_length) == (73, 128)
    job.write([chat_row("q", "a" * 220)])
    assert prepare_data(job.config, read_recipe(job.config)).dataset.max_length == 256
    job.values["hyperparameters"]["maxLength"] = 254
    assert prepare_data(job.config, read_recipe(job.config)).dataset.max_length == 254


def test_report_on_disk_says_where_the_rows_of_each_dataset_went(job: Job) -> None:
    other = job.folder / "other.jsonl"
    other.write_text(job.data.read_text())
    job.values["datasets"].append({"name": "other", "path": str(other), "field": FIELD})
    prepare_data(job.config, read_recipe(job.config))
    report = json.loads((job.workspace / PREPARED_FOLDER / REPORT_FILE).read_bytes())
    counts = [{key: one[key] for key in ("name", "read", "learned", "duplicates")} for one in report["counts"]]
    assert counts == [
        {"name": "train", "read": 12, "learned": 12, "duplicates": 0},
        {"name": "other", "read": 12, "learned": 0, "duplicates": 12},
    ]
    assert len(report["samples"]) == 3
    assert report["dataset"]["lossShare"] == f"{report['dataset']['lossTokens'] / report['dataset']['tokens']:.4f}"


def test_weight_repeats_or_draws_rows(job: Job) -> None:
    job.write([chat_row(f"q{number}", "a") for number in range(400)])
    plain = read_recipe(job.config)
    job.values["datasets"][0]["weight"] = "1.0"
    assert read_recipe(job.config).digest == plain.digest
    job.values["datasets"][0]["weight"] = "2.5"
    recipe = read_recipe(job.config)
    assert recipe.digest != plain.digest
    report = prepare_data(job.config, recipe)
    rows = prepared_rows(job)
    assert len(rows) == report.dataset.rows
    times = Counter(tuple(row["input_ids"]) for row in rows)
    assert set(times.values()) == {2, 3}
    assert 140 < sum(number == 3 for number in times.values()) < 260
    assert report.datasets[0].rows == 400
    job.values["datasets"][0]["weight"] = "0.5"
    report = prepare_data(job.config, read_recipe(job.config))
    assert 140 < report.dataset.rows < 260
    assert report.dataset.undrawn == 400 - report.dataset.rows
    again = prepared_rows(job)
    shutil.rmtree(job.workspace)
    prepare_data(job.config, read_recipe(job.config))
    assert prepared_rows(job) == again


def test_filter_leaves_out_rows_by_reward_and_turns(job: Job) -> None:
    long = {"messages": chat_row("q", "first")["messages"] + chat_row("r", "last")["messages"][1:], "reward": 1}
    rows = [{**chat_row(f"q{number}", "a"), "reward": number / 4} for number in range(5)]
    job.write([*rows, long, {**chat_row("yes", "a"), "success": True}, {**chat_row("no", "a"), "success": False}])
    plain = read_recipe(job.config)
    job.values["datasets"][0]["filter"] = {"minimumReward": "0.75", "maximumTurns": 1}
    recipe = read_recipe(job.config)
    report = prepare_data(job.config, recipe).dataset
    assert (report.read, report.rows, report.filtered) == (8, 3, 5)
    assert recipe.digest != plain.digest


def test_row_without_reward_is_refused_by_a_filter_on_it(job: Job) -> None:
    job.values["datasets"][0]["filter"] = {"minimumReward": "1"}
    assert job.run("prepare") == EXIT_USER_ERROR
    assert job.report.reason == "DatasetInvalid"
    assert job.report.message.startswith(f"{FIELD}, row 1: has neither a number `reward`")


def test_model_without_template_is_refused(job: Job, model_folder: Any) -> None:
    bare = job.folder / "bare"
    shutil.copytree(model_folder, bare)
    (bare / "chat_template.jinja").unlink()
    byte_tokenizer(template=None).save_pretrained(bare)
    job.values["baseModelPath"] = str(bare)
    assert job.run("prepare") == EXIT_USER_ERROR
    assert job.report.reason == "NoChatTemplate"
    assert "pvc://models/tiny" in job.report.message


def test_missing_base_model_is_refused(job: Job) -> None:
    job.values["baseModelPath"] = str(job.folder / "absent")
    assert job.run("prepare") == EXIT_USER_ERROR
    assert job.report.reason == "BaseModelNotFound"
    assert job.report.message.startswith("spec.baseModel (pvc://models/tiny): ")


@pytest.mark.parametrize(
    ("part", "field", "value", "words"),
    [
        ("plan", "microBatchSize", 3, "spec.plan.microBatchSize is 3, which does not divide"),
        ("hyperparameters", "maxLength", 512, "spec.hyperparameters.maxLength is 512, the base model reads 256"),
        ("hyperparameters", "learningRate", "0", "spec.hyperparameters.learningRate is 0"),
        ("hyperparameters", "warmupRatio", "1", "spec.hyperparameters.warmupRatio is 1; it must be"),
        ("lora", "dropout", "1.5", "spec.lora.dropout is 1.5; it must be"),
    ],
)
def test_hyperparameters_that_cannot_work_are_refused(
    job: Job, part: str, field: str, value: object, words: str
) -> None:
    job.values[part][field] = value
    assert job.run("prepare") == EXIT_USER_ERROR
    assert job.report.reason == "InvalidSpec"
    assert job.report.message.startswith(words)


def test_equal_decimals_are_the_same_recipe_and_other_data_is_not(job: Job) -> None:
    job.values["hyperparameters"]["learningRate"] = "2e-4"
    first = read_recipe(job.config)
    job.values["hyperparameters"]["learningRate"] = "0.00020"
    assert read_recipe(job.config).digest == first.digest
    job.write([chat_row("q", "another")])
    assert read_recipe(job.config).digest != first.digest
