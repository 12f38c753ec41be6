"""The published folder: what users of PEFT, people and the Hub find beside the weights."""

import json
import signal
from pathlib import Path

import pytest
from support.trainer_job import Job
from whetstone_api.adapter_artifact import Lineage, TrainingRecord
from whetstone_artifacts.folders import adapter_digest, verify_adapter

pytestmark = pytest.mark.torch

PNG = b"\x89PNG\r\n\x1a\n"
IMAGE = "registry.example.com/whetstone/trainer:1"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Job:
    """A job with held-out rows that was killed after step 4 of 9 and went on."""
    job = Job(tmp_path_factory.mktemp("trained"), model_folder)
    job.values |= {"image": IMAGE, "evaluation": {"share": "0.2", "everySteps": 2}}
    assert job.run("train", WHETSTONE_FAILPOINT="after-checkpoint:4") == -signal.SIGKILL
    assert job.run("train") == 0, job.log
    return job


def record_of(job: Job) -> TrainingRecord:
    return TrainingRecord.model_validate_json((job.output / "training_metrics.json").read_bytes())


def test_tokenizer_beside_the_adapter_renders_as_the_base_does(trained: Job, model_folder: Path) -> None:
    from transformers import AutoTokenizer

    messages = [{"role": "user", "content": "say hi"}]
    ours, base = (AutoTokenizer.from_pretrained(folder) for folder in (trained.output, model_folder))
    assert ours.chat_template == base.chat_template
    rendered = [one.apply_chat_template(messages, add_generation_prompt=True)["input_ids"] for one in (ours, base)]
    assert rendered[0] == rendered[1]


def test_metrics_have_every_step_of_all_attempts(trained: Job) -> None:
    record = record_of(trained)
    steps = record.published_step
    assert [entry["step"] for entry in record.steps] == list(range(1, steps + 1))
    assert all({"loss", "learningRate", "gradNorm", "tokensPerSecond"} <= set(entry) for entry in record.steps)
    assert all(entry["tokensPerSecond"] > 0 for entry in record.steps)
    assert [entry["step"] for entry in record.evaluations] == [*range(2, steps, 2), steps]
    assert f"{record.evaluations[-1]['evalLoss']:.4f}" == trained.report.result["metrics"]["evalLoss"]
    assert record.final == trained.report.result["metrics"]


def test_curve_is_a_picture_of_those_figures(trained: Job, tmp_path: Path) -> None:
    from whetstone_trainer.record import write_record

    drawn = (trained.output / "training_loss.png").read_bytes()
    assert drawn.startswith(PNG)
    record = record_of(trained)
    write_record(tmp_path, record)
    assert (tmp_path / "training_loss.png").read_bytes() == drawn
    write_record(tmp_path, record.model_copy(update={"evaluations": []}))
    assert (tmp_path / "training_loss.png").read_bytes() != drawn


def test_lineage_names_image_and_versions(trained: Job) -> None:
    lineage = Lineage.model_validate_json((trained.output / "lineage.json").read_bytes())
    assert lineage.image == IMAGE
    assert {"python", "torch", "tokenizers", "accelerate"} <= set(lineage.versions)


def test_card_says_what_the_hub_needs_and_where_it_came_from(trained: Job) -> None:
    from huggingface_hub import ModelCard

    card = ModelCard.load(trained.output / "README.md")
    assert card.data.library_name == "peft"
    assert card.data.tags == ["lora", "sft", "trl", "whetstone"]
    # The Hub refuses a base that is no repository there.
    assert card.data.base_model is None
    metrics = trained.report.result["metrics"]
    assert card.data.eval_results[0].metric_value == float(metrics["evalLoss"])
    for text in (
        "`pvc://models/tiny`",
        f"| trainLoss | {metrics['trainLoss']} |",
        "| lora.rank | 4 |",
        f"| Content digest | {adapter_digest(trained.output)} |",
        f"| Image | {IMAGE} |",
        "![Loss by step](training_loss.png)",
    ):
        assert text in card.text


def test_all_of_it_is_in_the_manifest_and_none_of_it_in_the_digest(trained: Job) -> None:
    manifest = verify_adapter(trained.output, trained.report.result["adapter"]["digest"])
    extra = {"README.md", "training_metrics.json", "training_loss.png", "tokenizer.json", "chat_template.jinja"}
    assert extra <= set(manifest.files)
    assert "tokenizer_config.json" in manifest.files
    before = adapter_digest(trained.output)
    kept = (trained.output / "README.md").read_bytes()
    (trained.output / "README.md").write_text("another card")
    assert adapter_digest(trained.output) == before
    (trained.output / "README.md").write_bytes(kept)


def test_hub_id_is_what_other_programs_find_the_base_by(job: Job) -> None:
    from huggingface_hub import ModelCard
    from whetstone_trainer.recipe import read_recipe

    digest = read_recipe(job.config).digest
    job.values |= {"baseModelHubId": "owner/tiny"}
    job.values["hyperparameters"] = {"maxSteps": 2, "batchSize": 2, "learningRate": "1e-2"}
    assert job.run("train") == 0, job.log
    assert json.loads((job.output / "adapter_config.json").read_bytes())["base_model_name_or_path"] == "owner/tiny"
    card = ModelCard.load(job.output / "README.md")
    assert card.data.base_model == "owner/tiny"
    assert 'from_pretrained("owner/tiny")' in card.text
    assert read_recipe(job.config).digest != digest
    assert json.loads((job.output / "lineage.json").read_bytes())["recipe"]["baseHubId"] == "owner/tiny"
