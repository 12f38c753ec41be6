"""What Unsloth is told, and what a job says where it is not; docs/loratrainingjob.md says on which GPU it trained."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.trainer_job import Job
from whetstone_api.jobs import EXIT_USER_ERROR, TrainingConfig
from whetstone_trainer.errors import UserError
from whetstone_trainer.recipe import effective_settings, read_recipe
from whetstone_trainer.unsloth_backend import LINEAR_LAYERS, import_unsloth, unsloth_calls

MakeJob = Callable[[str], Job]


def asking(job: Job, **fields: Any) -> TrainingConfig:
    """Return the configuration of a job that asks for Unsloth."""
    job.values.update({"backend": "Unsloth", **fields})
    return job.config


def test_every_setting_of_the_adapter_reaches_unsloth(make_job: MakeJob) -> None:
    lora = {"rank": 8, "alpha": 24, "dropout": "0.05", "targetModules": ["v_proj", "q_proj"], "rsLora": True}
    config = asking(make_job("a"), lora=lora, hyperparameters={"maxLength": 64, "seed": 5})
    calls = unsloth_calls(config, effective_settings(config, 256), checkpointing=True)
    assert calls.model == {
        "model_name": config.base_model_path,
        "max_seq_length": 64,
        "load_in_4bit": False,
        "load_in_8bit": False,
        "load_in_16bit": True,
        "full_finetuning": False,
        "fix_tokenizer": False,
        "trust_remote_code": False,
        "use_exact_model_name": True,
        "local_files_only": True,
        "random_state": 5,
    }
    assert calls.adapter == {
        "r": 8,
        "lora_alpha": 24,
        "lora_dropout": 0.05,
        "target_modules": ["q_proj", "v_proj"],
        "bias": "none",
        "use_rslora": True,
        "use_gradient_checkpointing": "unsloth",
        "random_state": 5,
    }


@pytest.mark.parametrize(
    ("quantization", "bits"),
    [("None", (False, False, True)), ("NF4", (True, False, False)), ("Int8", (False, True, False))],
)
def test_base_is_held_in_as_many_bits_as_asked(
    make_job: MakeJob, quantization: str, bits: tuple[bool, bool, bool]
) -> None:
    config = asking(make_job("a"), quantization=quantization)
    calls = unsloth_calls(config, effective_settings(config, 256), checkpointing=False)
    assert tuple(calls.model[f"load_in_{size}bit"] for size in (4, 8, 16)) == bits
    assert calls.adapter["use_gradient_checkpointing"] is False


def test_without_target_modules_all_linear_layers_are_adapted(make_job: MakeJob) -> None:
    config = asking(make_job("a"), lora={"rank": 4, "alpha": 8})
    assert unsloth_calls(config, effective_settings(config, 256), checkpointing=False).adapter[
        "target_modules"
    ] == list(LINEAR_LAYERS)


def test_backend_is_part_of_the_recipe(make_job: MakeJob) -> None:
    plain, other = (read_recipe(asking(make_job(backend), backend=backend)) for backend in ("TRL", "Unsloth"))
    assert plain.digest != other.digest
    assert "backend" not in plain.content


@pytest.mark.parametrize("kind", ["NF4", "Int8"])
def test_fewer_bits_without_a_gpu_are_refused_before_anything_is_trained(make_job: MakeJob, kind: str) -> None:
    job = make_job("a")
    asking(job, quantization=kind)
    assert job.run("prepare") == EXIT_USER_ERROR, job.log
    assert job.report.reason == "InvalidSpec"
    assert f"spec.quantization is {kind}, which backend Unsloth can do on a GPU only" in job.report.message
    job.values["onAccelerator"] = True
    assert read_recipe(job.config).content["quantization"] == kind


def test_image_without_unsloth_ends_the_job_with_the_fix(make_job: MakeJob) -> None:
    job = make_job("a")
    asking(job)
    assert job.run("train") == EXIT_USER_ERROR, job.log
    assert (job.report.reason, "images/trainer-unsloth" in job.report.message) == ("BackendUnavailable", True)
    assert not job.workspace.exists()


def test_device_that_unsloth_refuses_ends_the_job_with_the_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As Unsloth does where the driver shows a GPU that torch cannot use.
    (tmp_path / "unsloth.py").write_text("raise NotImplementedError('nvidia-smi sees a GPU, and torch does not')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("UNSLOTH_DISABLE_STATISTICS", "1")
    monkeypatch.setenv("UNSLOTH_COMPILE_LOCATION", str(tmp_path))
    with pytest.raises(UserError, match="nvidia-smi sees a GPU") as refused:
        import_unsloth()
    assert refused.value.reason == "BackendUnavailable"
