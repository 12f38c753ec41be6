"""Merge: the published model answers as base plus adapter did, or it is not published."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.trainer_job import Job
from whetstone_api.adapter_artifact import Lineage, Probe, ProbeCase
from whetstone_api.jobs import EXIT_USER_ERROR
from whetstone_artifacts.folders import adapter_digest, write_manifest
from whetstone_artifacts.models import model_digest, recorded_model
from whetstone_trainer.__main__ import EXIT_RETRY

pytestmark = pytest.mark.torch
KILLED = -9
WEIGHTS_FIT_NOT = 30_000
"""Bytes of a file: more than tokenizer and lineage take, less than the merged weights."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Job:
    """A job whose adapter is published and whose merged model is not made yet."""
    job = Job(tmp_path_factory.mktemp("trained"), model_folder)
    assert job.run("train") == 0, job.log
    return job


@pytest.fixture
def job(trained: Job, tmp_path: Path, model_folder: Path) -> Job:
    """A job of the test's own with that adapter, which asks for a merged model."""
    shutil.copytree(trained.folder, tmp_path / "job")
    shutil.copytree(model_folder, tmp_path / "base")
    job = Job(tmp_path / "job", tmp_path / "base")
    job.values["mergedPath"] = str(merged_folder(job))
    job.values["mergedUri"] = "pvc://models/merged"
    return job


def merged_folder(job: Job) -> Path:
    """Return where the merged model shall lie."""
    return job.folder / "models" / "merged"


def base_folder(job: Job) -> Path:
    """Return the base model's folder."""
    return Path(job.values["baseModelPath"])


def logits(model: Any, probe: Probe) -> Any:
    """Return a model's logits for the first recorded sequence."""
    import torch

    with torch.inference_mode():
        return model.eval()(input_ids=torch.tensor([probe.cases[0].token_ids])).logits


def test_merged_model_answers_as_base_plus_adapter(job: Job) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    assert job.run("merge") == 0, job.log
    probe = Probe.model_validate_json((job.output / "probe.json").read_bytes())
    merged = AutoModelForCausalLM.from_pretrained(merged_folder(job))
    base = AutoModelForCausalLM.from_pretrained(base_folder(job))
    alone = logits(base, probe)
    together = logits(PeftModel.from_pretrained(base, job.output), probe)
    assert float((logits(merged, probe) - together).abs().max()) < 1e-4
    assert float((logits(merged, probe) - alone).abs().max()) > 0.1
    template = AutoTokenizer.from_pretrained(merged_folder(job)).chat_template
    assert template == AutoTokenizer.from_pretrained(base_folder(job)).chat_template


def test_merged_model_is_published_with_digest_and_lineage(job: Job) -> None:
    assert job.run("merge") == 0, job.log
    result = job.report.result["merged"]
    assert result["uri"] == "pvc://models/merged"
    assert result["digest"] == model_digest(merged_folder(job))
    record = recorded_model(merged_folder(job))
    assert record is not None
    assert result["bytes"] == sum(entry.size for entry in record.files.values())
    lineage = Lineage.model_validate_json((merged_folder(job) / "lineage.json").read_bytes())
    assert lineage.merged_adapter == adapter_digest(job.output)


def test_base_of_half_precision_stays_so(job: Job) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    half = job.folder / "half"
    shutil.copytree(base_folder(job), half)
    AutoModelForCausalLM.from_pretrained(half).to(torch.bfloat16).save_pretrained(half)
    job.values["baseModelPath"] = str(half)
    shutil.rmtree(job.output)
    shutil.rmtree(job.workspace)
    assert job.run("train") == 0, job.log
    assert job.run("merge") == 0, job.log
    merged = AutoModelForCausalLM.from_pretrained(merged_folder(job), dtype="auto")
    assert merged.dtype == torch.bfloat16


def test_killed_before_it_publishes_it_publishes_once_and_is_adopted_then(job: Job) -> None:
    assert job.run("merge", WHETSTONE_FAILPOINT="before-publish-merged") in (KILLED, 128 - KILLED)
    assert not merged_folder(job).exists()
    assert job.run("merge") == 0, job.log
    first = job.report
    assert [path.name for path in merged_folder(job).parent.iterdir() if ".partial-" in path.name] == []
    assert job.run("merge") == 0, job.log
    assert (first.result["adopted"], job.report.result["adopted"]) == (False, True)
    assert first.result["merged"] == job.report.result["merged"]


def halve(case: ProbeCase) -> ProbeCase:
    """Return a case with half of the adapter's effect."""
    pairs = zip(case.base_logprobs, case.adapter_logprobs, strict=True)
    return case.model_copy(update={"adapter_logprobs": [base + (adapter - base) / 2 for base, adapter in pairs]})


def spoil_probe(job: Job) -> None:
    """Record another effect than the adapter has: half of it."""
    path = job.output / "probe.json"
    probe = Probe.model_validate_json(path.read_bytes())
    spoiled = probe.model_copy(update={"cases": [halve(case) for case in probe.cases]})
    path.write_text(spoiled.to_json())
    write_manifest(job.output)


def change_base(job: Job) -> None:
    """Put another revision of the base model in its place."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(base_folder(job))
    with torch.no_grad():
        next(model.parameters()).mul_(1.01)
    model.save_pretrained(base_folder(job))


def occupy(job: Job) -> None:
    """Put somebody's file in the place."""
    merged_folder(job).mkdir(parents=True)
    (merged_folder(job) / "model.safetensors").write_text("mine")


def quantize(job: Job) -> None:
    """Say that the base model's weights are quantized."""
    path = base_folder(job) / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "quantization_config": {"quant_method": "fp8"}}))


@pytest.mark.parametrize(
    ("spoil", "reason", "words"),
    [
        (spoil_probe, "MergeDiverged", "misses the adapter's effect"),
        (change_base, "BaseModelNotFound", "spec.baseModel (pvc://models/tiny)"),
        (occupy, "OutputOccupied", "name another spec.output"),
        (quantize, "InvalidSpec", "spec.output.merged"),
    ],
)
def test_what_cannot_be_merged_is_said_and_nothing_is_published(
    job: Job, spoil: Callable[[Job], None], reason: str, words: str
) -> None:
    spoil(job)
    before = sorted(path.name for path in merged_folder(job).glob("*"))
    assert job.run("merge") == EXIT_USER_ERROR, job.log
    assert job.report.reason == reason
    assert words in job.report.message
    assert sorted(path.name for path in merged_folder(job).glob("*")) == before


def files_of(*folders: Path) -> dict[Path, int]:
    """Return when each file was written."""
    return {path: path.stat().st_mtime_ns for folder in folders for path in folder.rglob("*") if path.is_file()}


def test_full_disk_while_merging_is_told_and_the_next_attempt_merges_without_training(job: Job) -> None:
    trained = files_of(job.output, job.workspace)
    assert job.run("merge", largest_file=WEIGHTS_FIT_NOT) == EXIT_RETRY, job.log
    assert job.report.reason == "DiskFull"
    assert job.report.message.startswith(f"no room for the merged model in {merged_folder(job).parent} (")
    assert "make room in the claim of spec.output: the next attempt publishes" in job.report.message
    # Neither the folder nor a part of it: the lock alone.
    assert [path.name for path in merged_folder(job).parent.iterdir() if path.is_dir()] == []
    assert job.run("merge") == 0, job.log
    assert job.report.result["adopted"] is False
    assert job.report.result["merged"]["digest"] == model_digest(merged_folder(job))
    assert files_of(job.output, job.workspace) == trained


def test_quantized_base_is_refused_before_anything_is_trained(job: Job) -> None:
    quantize(job)
    assert job.run("prepare") == EXIT_USER_ERROR, job.log
    assert job.report.reason == "InvalidSpec"


def test_merged_model_is_pushed_once_it_is_published(job: Job) -> None:
    shared = job.folder / "shared" / "merged"
    push = {"name": "copy", "uri": "pvc://shared/merged", "what": "Merged", "path": str(shared)}
    job.values["pushes"] = [push]
    assert job.run("merge") == 0, job.log
    digest = model_digest(merged_folder(job))
    assert job.report.result["merged"]["digest"] == digest
    assert job.report.result["pushes"] == [{"name": "copy", "uri": push["uri"], "digest": digest}]
    assert model_digest(shared) == digest
