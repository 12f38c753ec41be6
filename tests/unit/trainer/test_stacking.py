"""A new adapter on top of another one: what is published does on the recorded base what both do together."""

import json
import math
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.preferences import prefer
from support.trainer_job import Job, chat_row
from whetstone_api.adapter_artifact import Lineage, Probe
from whetstone_artifacts.folders import adapter_digest
from whetstone_trainer.errors import UserError
from whetstone_trainer.recipe import read_recipe

pytestmark = pytest.mark.torch
LAYER = "model.layers.0"
BY_WHOLE_NAMES = sorted(
    [f"{LAYER}.mlp.up_proj"]
    + [f"model.layers.{n}.{name}" for n in (0, 1) for name in ("mlp.down_proj", "self_attn.q_proj", "self_attn.v_proj")]
)
"""The modules of both adapters, where the end of a name would mean more of them."""
TOKENS = [[5, 6, 7, 8, 9, 10, 40, 41, 200]]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Job:
    """A job that has published the first adapter: rank 4 on all linear layers but one kind, rsLoRA."""
    job = Job(tmp_path_factory.mktemp("first"), model_folder)
    job.values["lora"] |= {"rsLora": True, "targetModules": ["q_proj", "v_proj", "down_proj"]}
    assert job.run("train") == 0, job.log
    return job


@pytest.fixture
def make_stacked(first: Job, make_job: Callable[[str], Job]) -> Callable[[str], Job]:
    """Make jobs that train an adapter of rank 3 on other modules on top of the first one."""

    def make(name: str) -> Job:
        job = make_job(name)
        job.write([chat_row("other", "rows", task="sha256:9"), chat_row("more", "answers", task="sha256:8")])
        job.values |= {
            "initAdapterPath": str(first.output),
            "initAdapterSource": "pvc://adapters/first",
            "initAdapterMode": "MergeThenNew",
            "lora": {"rank": 3, "alpha": 5, "dropout": "0", "targetModules": ["q_proj", "up_proj"]},
            "hyperparameters": {"maxSteps": 6, "batchSize": 2, "learningRate": "1e-2"},
            "plan": {},
        }
        return job

    return make


def logits(model: Any) -> Any:
    import torch

    with torch.inference_mode():
        return model.eval()(input_ids=torch.tensor(TOKENS)).logits


def second_alone(job: Job, folder: Path) -> Path:
    """Return the folder of the second adapter as the last checkpoint holds it."""
    checkpoints = sorted((job.workspace / "checkpoints").glob("checkpoint-*"), key=lambda one: int(one.name[11:]))
    shutil.copytree(checkpoints[-1], folder)
    return folder


@pytest.mark.parametrize(
    ("shape", "targets"),
    [
        ({"targetModules": ["q_proj", "up_proj"]}, ["down_proj", "q_proj", "up_proj", "v_proj"]),
        ({"targetModules": ["q_proj", f"{LAYER}.mlp.up_proj"], "rsLora": True}, BY_WHOLE_NAMES),
    ],
    ids=["alpha / rank", "rsLoRA, one layer's module"],
)
def test_published_adapter_is_the_sum_of_both(
    first: Job,
    make_stacked: Callable[[str], Job],
    model_folder: Path,
    tmp_path: Path,
    shape: dict[str, Any],
    targets: list[str],
) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    job = make_stacked("sum")
    job.values["lora"] |= shape
    assert job.run("train") == 0, job.log
    base = AutoModelForCausalLM.from_pretrained(model_folder)
    plain = logits(base)
    one = PeftModel.from_pretrained(base, str(first.output)).merge_and_unload()
    after_first = logits(one)
    both = logits(PeftModel.from_pretrained(one, str(second_alone(job, tmp_path / "second"))))
    served = logits(PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model_folder), str(job.output)))
    assert float((served - both).abs().max()) < 1e-5
    assert float((after_first - plain).abs().max()) > 1e-2
    assert float((both - after_first).abs().max()) > 1e-2
    assert job.report.result["adapter"]["rank"] == 7
    config = json.loads((job.output / "adapter_config.json").read_bytes())
    assert (config["r"], config["target_modules"]) == (7, targets)


def test_probe_is_recorded_on_the_base_without_any_adapter(
    first: Job, make_stacked: Callable[[str], Job], model_folder: Path
) -> None:
    from transformers import AutoModelForCausalLM
    from whetstone_trainer.probe import ProbeSequence, measure

    job = make_stacked("probe")
    assert job.run("train") == 0, job.log
    probe = Probe.model_validate_json((job.output / "probe.json").read_bytes())
    case = probe.cases[0]
    base = AutoModelForCausalLM.from_pretrained(model_folder).eval()
    [measured] = measure(base, [ProbeSequence(token_ids=case.token_ids, answer_start=case.answer_start)])
    assert case.base_logprobs == pytest.approx(measured, abs=1e-4)
    assert case.adapter_logprobs != pytest.approx(measured, abs=1e-2)
    lineage = Lineage.model_validate_json((job.output / "lineage.json").read_bytes())
    assert lineage.recipe["initAdapter"] == adapter_digest(first.output)
    assert lineage.recipe["initMode"] == "MergeThenNew"
    assert {"sha256:0", "sha256:9"} <= set(lineage.task_digests)


def test_new_adapter_begins_as_it_would_on_a_base_that_holds_the_first_one(
    first: Job, make_stacked: Callable[[str], Job], model_folder: Path, tmp_path: Path
) -> None:
    """Loading the first adapter draws random numbers, which the new one must not be made of."""
    from peft import PeftModel
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    stacked, plain = make_stacked("stacked"), make_stacked("plain")
    merged = tmp_path / "merged"
    shutil.copytree(model_folder, merged)
    base = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model_folder), str(first.output))
    base.merge_and_unload(safe_merge=True).save_pretrained(merged)
    plain.values |= {"baseModelPath": str(merged), "initAdapterPath": None}
    for job in (stacked, plain):
        assert job.run("train") == 0, job.log
    one, other = (
        load_file(second_alone(job, tmp_path / f"second-{job.folder.name}") / "adapter_model.safetensors")
        for job in (stacked, plain)
    )
    assert {name: tensor.tolist() for name, tensor in one.items()} == {
        name: tensor.tolist() for name, tensor in other.items()
    }


def test_new_adapter_begins_the_same_where_processes_share_the_base(
    make_stacked: Callable[[str], Job], tmp_path: Path
) -> None:
    """There nothing between the first adapter and the new one sets the seed, as TRL does otherwise.

    In the first step B is zero, and with it the gradient of A: the checkpoint after it has A as it began.
    """
    from safetensors.torch import load_file

    begun = []
    for processes in (1, 2):
        job = make_stacked(f"begun-by-{processes}")
        job.values["hyperparameters"] |= {"maxSteps": 1, "warmupRatio": "0"}
        job.values["world"] = {"nodes": 1, "processesPerNode": processes, "strategy": "FSDP"}
        assert job.run("train") == 0, job.log
        tensors = load_file(second_alone(job, tmp_path / str(processes)) / "adapter_model.safetensors")
        begun.append({name: tensor.tolist() for name, tensor in tensors.items() if ".lora_A." in name})
    assert "holds" in job.log
    assert begun[0] == begun[1]


def test_killed_and_resumed_run_gives_the_same_bytes(make_stacked: Callable[[str], Job]) -> None:
    whole, killed = make_stacked("whole"), make_stacked("killed")
    assert whole.run("train") == 0, whole.log
    killed.values["checkpoint"] = whole.values["checkpoint"]
    assert killed.run("train", WHETSTONE_FAILPOINT="after-checkpoint:4") == -signal.SIGKILL
    assert killed.run("train") == 0, killed.log
    assert "going on from" in killed.log
    assert adapter_digest(killed.output) == adapter_digest(whole.output)


def test_pairs_are_measured_against_the_first_adapter(make_stacked: Callable[[str], Job]) -> None:
    job = make_stacked("pairs")
    lora = job.values["lora"]
    prefer(job)
    job.values["lora"] = lora
    assert job.run("train") == 0, job.log
    state = next((job.workspace / "checkpoints").glob("checkpoint-6")) / "trainer_state.json"
    history = json.loads(state.read_bytes())["log_history"]
    assert history[0]["loss"] == pytest.approx(math.log(2), abs=1e-4)
    assert job.report.result["adapter"]["rank"] == 7


@pytest.mark.parametrize("named", ["first", "base"])
def test_reference_of_pairs_is_not_mixed_with_the_adapter_in_the_base(
    first: Job, make_stacked: Callable[[str], Job], model_folder: Path, named: str
) -> None:
    """The first adapter by its name is the default reference; the base by its name is the base alone."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM
    from whetstone_trainer.dpo import load_reference_model

    job = prefer(make_stacked("reference"))
    place, path = ("adapter", first.output) if named == "first" else ("model", model_folder)
    job.values["reference"] = {f"{place}Path": str(path), f"{place}Source": "pvc://other/one"}
    expected = AutoModelForCausalLM.from_pretrained(model_folder)
    if named == "first":
        expected = PeftModel.from_pretrained(expected, str(first.output))
    assert float((logits(load_reference_model(job.config)) - logits(expected)).abs().max()) < 1e-5


def test_rank_of_both_together_is_held_to_what_is_served(make_stacked: Callable[[str], Job]) -> None:
    job = make_stacked("ranks")
    job.values["servedRank"] = 7
    read_recipe(job.config)
    job.values["servedRank"] = 6
    with pytest.raises(UserError, match=r"its rank of 4 and spec.lora.rank of 3 make 7, above .*maxRank \(6\)") as told:
        read_recipe(job.config)
    assert told.value.reason == "RankNotServable"
    job.values["lora"]["rank"] = 509
    with pytest.raises(UserError, match=r"make 513, and engines load at most 512; lower spec.lora.rank") as told:
        read_recipe(job.config)
    assert told.value.reason == "InvalidSpec"


def test_going_on_and_stacking_are_two_recipes(make_stacked: Callable[[str], Job]) -> None:
    job = make_stacked("recipes")
    job.values["lora"] = {"rank": 4, "alpha": 8, "dropout": "0", "rsLora": True}
    stacked = read_recipe(job.config)
    job.values["initAdapterMode"] = "Continue"
    assert "initMode" not in read_recipe(job.config).content
    assert read_recipe(job.config).digest != stacked.digest


@pytest.mark.long
def test_processes_that_share_the_base_stack_as_one_does(make_stacked: Callable[[str], Job]) -> None:
    from safetensors.torch import load_file

    published = []
    for strategy in ("DDP", "FSDP"):
        job = make_stacked(strategy.lower())
        job.values["world"] = {"nodes": 1, "processesPerNode": 2, "strategy": strategy}
        assert job.run("train") == 0, job.log
        published.append(load_file(job.output / "adapter_model.safetensors"))
    whole, shared = published
    assert set(whole) == set(shared)
    assert max(float((whole[name] - shared[name]).abs().max()) for name in whole) < 1e-5
