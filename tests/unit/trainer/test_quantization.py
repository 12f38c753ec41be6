"""A base in 4 or 8 bits: trained on for real, recorded on the base that is served, merged into that."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.trainer_job import Job
from whetstone_api.adapter_artifact import Lineage, Probe
from whetstone_api.jobs import EXIT_USER_ERROR
from whetstone_trainer.errors import UserError
from whetstone_trainer.recipe import read_recipe

MakeJob = Callable[[str], Job]


@pytest.mark.torch
@pytest.mark.parametrize(("kind", "layer"), [("NF4", "Linear4bit"), ("Int8", "Linear8bitLt")])
def test_layers_of_the_base_are_held_in_fewer_bits(job: Job, kind: str, layer: str) -> None:
    from whetstone_api.training_data import DatasetReport
    from whetstone_trainer.base_model import load_model
    from whetstone_trainer.plan import Device, make_plan

    job.values["quantization"] = kind
    dataset = DatasetReport(rows=1, tokens=8, loss_tokens=1, longest=8)
    plan = make_plan(job.config, read_recipe(job.config).settings, dataset, Device(is_gpu=False))
    model = load_model(job.config, plan)
    assert type(model.model.layers[0].mlp.up_proj).__name__ == layer
    assert type(model.lm_head).__name__ == "Linear"


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["NF4", "Int8"])
def test_adapter_is_trained_recorded_and_merged(job: Job, model_folder: Path, kind: str) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    job.values |= {"quantization": kind, "mergedPath": str(job.folder / "merged"), "mergedUri": "pvc://models/m"}
    assert job.run("train") == 0, job.log
    losses = [float(line.split("'loss': '")[1].split("'")[0]) for line in job.log.splitlines() if "'loss': '" in line]
    assert losses[-1] < losses[0]
    lineage = Lineage.model_validate_json((job.output / "lineage.json").read_bytes())
    assert lineage.recipe["quantization"] == kind
    probe = Probe.model_validate_json((job.output / "probe.json").read_bytes())
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model_folder), job.output).eval()
    for case in probe.cases:
        ids = torch.tensor([case.token_ids])
        with torch.inference_mode():
            scores = torch.log_softmax(model(ids).logits[0], dim=-1)
        for offset, recorded in enumerate(case.adapter_logprobs):
            place = case.answer_start + offset
            assert math.isclose(float(scores[place - 1, ids[0, place]]), recorded, abs_tol=probe.noise)
    assert job.run("merge") == 0, job.log
    assert "quantization_config" not in json.loads((job.folder / "merged" / "config.json").read_bytes())


def test_only_a_quantized_job_has_another_recipe(job: Job) -> None:
    plain = read_recipe(job.config)
    assert "quantization" not in plain.content
    job.values["quantization"] = "None"
    assert read_recipe(job.config).digest == plain.digest
    job.values["quantization"] = "NF4"
    assert read_recipe(job.config).digest != plain.digest


def test_quantized_base_is_not_quantized_again(job: Job, model_folder: Path) -> None:
    base = job.folder / "quantized"
    shutil.copytree(model_folder, base)
    config = json.loads((base / "config.json").read_bytes())
    (base / "config.json").write_text(json.dumps({**config, "quantization_config": {"quant_method": "awq"}}))
    job.values |= {"quantization": "NF4", "baseModelPath": str(base)}
    assert job.run("prepare") == EXIT_USER_ERROR
    assert job.report.reason == "InvalidSpec"
    assert "spec.quantization is NF4, and the weights of pvc://models/tiny are quantized already (awq)" in (
        job.report.message
    )


@pytest.mark.parametrize("strategy", ["FSDP", "ZeRO2", "ZeRO3"])
def test_shares_of_a_quantized_base_are_refused(job: Job, strategy: str) -> None:
    job.values |= {"quantization": "NF4", "world": {"nodes": 2, "strategy": strategy}}
    with pytest.raises(UserError, match=f"which {strategy} cannot share out"):
        read_recipe(job.config)
