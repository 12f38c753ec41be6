"""Training: killed anywhere and resumed, it ends with the same bytes as undisturbed; bad input ends it for good."""

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.trainer_job import ROOT, Job, chat_row
from whetstone_api.adapter_artifact import Lineage, Probe
from whetstone_api.jobs import EXIT_STOPPED, EXIT_USER_ERROR
from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.folders import adapter_digest, verify_adapter
from whetstone_trainer.errors import UserError
from whetstone_trainer.recipe import read_recipe

pytestmark = pytest.mark.torch

MakeJob = Callable[[str], Job]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Job:
    """A job that ran to its end without a disturbance: 9 steps, checkpoints at 2, 4, 6, 8 and 9."""
    job = Job(tmp_path_factory.mktemp("undisturbed"), model_folder)
    assert job.run("train") == 0, job.log
    return job


def test_adapter_is_published_with_digest_and_figures(undisturbed: Job) -> None:
    result = undisturbed.report.result
    assert result["adopted"] is False
    assert result["adapter"]["uri"] == "pvc://adapters/a"
    assert result["adapter"]["rank"] == 4
    verify_adapter(undisturbed.output, result["adapter"]["digest"])
    assert set(result["metrics"]) == {"trainLoss", "trainSeconds", "tokensPerSecond"}
    assert all(re.fullmatch(r"[0-9]+\.[0-9]+", figure) for figure in result["metrics"].values())


def test_adapter_names_its_base_by_uri_and_its_lineage(undisturbed: Job) -> None:
    config = json.loads((undisturbed.output / "adapter_config.json").read_bytes())
    assert config["base_model_name_or_path"] == "pvc://models/tiny"
    assert config["target_modules"] == sorted(config["target_modules"])
    lineage = Lineage.model_validate_json((undisturbed.output / "lineage.json").read_bytes())
    assert lineage.recipe["hyperparameters"]["learningRate"] == "0.01"  # type: ignore[index]
    assert lineage.task_digests == ["sha256:0", "sha256:1", "sha256:2", "sha256:3"]
    assert lineage.versions["trl"] == "1.16.0"
    assert lineage.image is None


def test_rank_stabilised_scaling_is_trained_and_recorded(job: Job) -> None:
    job.values["lora"]["rsLora"] = True
    job.values["hyperparameters"] = {"maxSteps": 2, "batchSize": 2, "learningRate": "1e-2"}
    assert job.run("train") == 0, job.log
    assert json.loads((job.output / "adapter_config.json").read_bytes())["use_rslora"] is True


def test_probe_holds_what_the_published_files_do(undisturbed: Job, model_folder: Path) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    probe = Probe.model_validate_json((undisturbed.output / "probe.json").read_bytes())
    assert probe.dtype == "float32"
    assert 1e-4 <= probe.noise < 1e-2
    assert 1 <= len(probe.cases) <= 4
    base = AutoModelForCausalLM.from_pretrained(model_folder)
    model = PeftModel.from_pretrained(base, undisturbed.output).eval()
    assert [case.messages[-1]["role"] for case in probe.templates] == ["user"] * 3
    largest = 0.0
    for case in probe.cases:
        assert len(case.token_ids) <= 200
        ids = torch.tensor([case.token_ids])
        with torch.inference_mode():
            scores = torch.log_softmax(model(ids).logits[0], dim=-1)
        for offset, recorded in enumerate(case.adapter_logprobs):
            position = case.answer_start + offset
            assert math.isclose(float(scores[position - 1, ids[0, position]]), recorded, abs_tol=probe.noise)
            largest = max(largest, abs(recorded - case.base_logprobs[offset]))
    assert largest > 10 * probe.noise


def test_only_the_newest_checkpoints_are_kept(undisturbed: Job) -> None:
    kept = sorted(path.name for path in (undisturbed.workspace / "checkpoints").glob("checkpoint-*"))
    assert kept == ["checkpoint-8", "checkpoint-9"]


@pytest.mark.parametrize("place", ["after-checkpoint:4", "mid-checkpoint", "after-checkpoint:9", "before-publish"])
def test_killed_and_resumed_run_gives_the_same_bytes(undisturbed: Job, job: Job, place: str) -> None:
    assert job.run("train", WHETSTONE_FAILPOINT=place) == -signal.SIGKILL
    assert not job.output.exists()
    assert job.run("train", WHETSTONE_FAILPOINT=place) == 0, job.log
    assert adapter_digest(job.output) == adapter_digest(undisturbed.output)
    assert [path.name for path in job.output.parent.iterdir() if "partial" in path.name] == []


def test_damaged_checkpoint_is_passed_over(undisturbed: Job, job: Job) -> None:
    assert job.run("train", WHETSTONE_FAILPOINT="after-checkpoint:4") == -signal.SIGKILL
    weights = job.workspace / "checkpoints" / "checkpoint-4" / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert job.run("train") == 0, job.log
    assert "checkpoint-4 is damaged and passed over" in job.log
    assert adapter_digest(job.output) == adapter_digest(undisturbed.output)


def test_sigterm_saves_and_asks_for_another_attempt(job: Job) -> None:
    job.values["hyperparameters"] = {"maxSteps": 100000, "batchSize": 2, "learningRate": "1e-3"}
    job.values["checkpoint"]["everySteps"] = 100000
    process = job.start("train")
    assert process.stdout is not None
    for line in process.stdout:
        if "'loss'" in line:
            break
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == EXIT_STOPPED
    assert job.report.outcome == "Retry"
    step = re.search(r"after step (\d+) of 100000", job.report.message)
    assert step is not None
    assert (job.workspace / "checkpoints" / f"checkpoint-{step[1]}" / "manifest.json").is_file()


def test_program_begins_without_the_libraries_of_training() -> None:
    """Half a minute on a busy node, which neither an adoption nor a refusal needs."""
    code = "import sys, whetstone_trainer.__main__; print(*{'torch', 'transformers', 'peft', 'trl'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, text=True, stdout=subprocess.PIPE)
    assert done.stdout.split() == []


def test_program_ends_with_its_report_and_tidies_nothing_up(job: Job, tmp_path: Path) -> None:
    """That takes seconds with torch loaded, and the next Job waits for the end."""
    (tmp_path / "sitecustomize.py").write_text("import atexit; atexit.register(lambda: print('tidied up'))")
    roots = os.pathsep.join([str(tmp_path), *(str(ROOT / part) for part in ("operator", "trainer"))])
    assert job.run("prepare", PYTHONPATH=os.pathsep.join([roots, os.environ.get("PYTHONPATH", "")])) == 0, job.log
    assert job.log.strip().endswith("12 rows with 488 tokens are prepared")


def test_result_of_the_same_recipe_is_adopted(undisturbed: Job, make_job: MakeJob) -> None:
    other = make_job("other")
    other.values["outputPath"] = str(undisturbed.output)
    for stage in ("prepare", "train"):
        assert other.run(stage) == 0, other.log
        assert other.report.reason == "Adopted"
        for told in ("adapter", "metrics", "plan"):
            assert other.report.result[told] == undisturbed.report.result[told]
    assert not other.workspace.exists()


def test_result_of_another_recipe_is_never_overwritten(undisturbed: Job, make_job: MakeJob) -> None:
    other = make_job("other")
    other.values["outputPath"] = str(undisturbed.output)
    other.values["lora"]["rank"] = 8
    before = adapter_digest(undisturbed.output)
    assert other.run("train") == EXIT_USER_ERROR
    assert other.report.reason == "OutputOccupied"
    assert "lora.rank: 4 there, 8 asked" in other.report.message
    assert adapter_digest(undisturbed.output) == before


def test_checkpoints_of_another_recipe_are_refused(undisturbed: Job, job: Job) -> None:
    shutil.copytree(undisturbed.workspace, job.workspace)
    job.write([chat_row("q", "other data")])
    assert job.run("train") == EXIT_USER_ERROR
    assert job.report.reason == "CheckpointMismatch"


def test_diverging_training_ends_for_good(job: Job) -> None:
    job.values["hyperparameters"]["learningRate"] = "1e30"
    assert job.run("train") == EXIT_USER_ERROR
    assert job.report.reason == "TrainingDiverged"
    assert not job.output.exists()


def nothing_learned(name: str, tensor: Any) -> Any:
    return tensor * 0 if ".lora_B." in name else tensor


def not_finite(name: str, tensor: Any) -> Any:
    return tensor / 0 if name.endswith("layers.1.self_attn.v_proj.lora_A.weight") else tensor


def emptied(name: str, tensor: Any) -> Any:
    return tensor[:0] if name.endswith("layers.0.mlp.up_proj.lora_A.weight") else tensor


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (nothing_learned, "every lora_B of the adapter is zero, .* raise spec.hyperparameters.learningRate"),
        (not_finite, "layers.1.self_attn.v_proj.lora_A.weight of the adapter is not finite; lower spec"),
        (emptied, "layers.0.mlp.up_proj.lora_A.weight has shape .0, 32.; it must be a non-empty matrix"),
    ],
)
def test_adapter_that_learned_nothing_or_is_broken_is_not_published(
    undisturbed: Job, tmp_path: Path, spoil: Callable[[str, Any], Any], words: str
) -> None:
    from safetensors.torch import load_file, save_file
    from whetstone_trainer.publish import verify_saved

    folder = tmp_path / "adapter"
    shutil.copytree(undisturbed.output, folder)
    verify_saved(folder, undisturbed.config)
    weights = folder / "adapter_model.safetensors"
    save_file({name: spoil(name, tensor) for name, tensor in load_file(weights).items()}, weights)
    with pytest.raises((UserError, ArtifactError), match=words):
        verify_saved(folder, undisturbed.config)


@pytest.mark.parametrize(
    ("target", "words"), [("qproj", "its linear layers are down_proj, gate_proj"), ("lm_head", "cannot be hot-loaded")]
)
def test_wrong_target_module_is_named(job: Job, target: str, words: str) -> None:
    from whetstone_trainer.base_model import load_model, lora_config

    job.values["lora"]["targetModules"] = ["q_proj", target]
    with pytest.raises(UserError, match=f"spec.lora.targetModules names {target}") as caught:
        lora_config(job.config, read_recipe(job.config).settings, load_model(job.config))
    assert caught.value.reason == "InvalidSpec"
    assert words in caught.value.message
