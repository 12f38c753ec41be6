"""DPO: the loss is what its formula says of the scored tokens alone; a killed run ends as an undisturbed one."""

import json
import math
import re
import shutil
import signal
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from support.preferences import prefer
from support.trainer_job import Job, byte_tokenizer
from whetstone_api.adapter_artifact import Lineage, Probe
from whetstone_api.training_preference import LossType, PreferenceSpec
from whetstone_artifacts.folders import adapter_digest
from whetstone_trainer.errors import UserError
from whetstone_trainer.recipe import read_recipe

pytestmark = pytest.mark.torch

BETA = 0.5
PAIRS: list[dict[str, list[int]]] = [
    {
        "input_ids": [5, 6, 7, 8, 9],
        "labels": [-100, -100, 7, 8, 9],
        "rejected_ids": [5, 6, 4],
        "rejected_labels": [-100, -100, 4],
    },
    # A tool's result (20, 21) lies between two scored turns.
    {
        "input_ids": [5, 30, 20, 21, 31],
        "labels": [-100, 30, -100, -100, 31],
        "rejected_ids": [5, 32, 20, 33, 34],
        "rejected_labels": [-100, 32, -100, 33, 34],
    },
]


def log_sigmoid(value: float) -> float:
    return -math.log1p(math.exp(-value))


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


Sides = tuple[float, float, int, int, float]
"""Log-ratios of chosen and rejected side against the reference, their scored tokens, chosen log-probability."""
FORMULAS: dict[LossType, Callable[[Sides], float]] = {
    LossType.SIGMOID: lambda s: -log_sigmoid(BETA * (s[0] - s[1])),
    LossType.SIGMOID_NORM: lambda s: -log_sigmoid(BETA * (s[0] / s[2] - s[1] / s[3])),
    LossType.HINGE: lambda s: max(0.0, 1 - BETA * (s[0] - s[1])),
    LossType.IPO: lambda s: (s[0] / s[2] - s[1] / s[3] - 1 / (2 * BETA)) ** 2,
    LossType.APO_ZERO: lambda s: 1 - sigmoid(BETA * s[0]) + sigmoid(BETA * s[1]),
    LossType.APO_DOWN: lambda s: sigmoid(BETA * s[0]) + 1 - sigmoid(BETA * (s[0] - s[1])),
    LossType.BCO_PAIR: lambda s: -log_sigmoid(BETA * s[0]) - log_sigmoid(-BETA * s[1]),
    LossType.NCA_PAIR: lambda s: (
        -log_sigmoid(BETA * s[0]) - 0.5 * log_sigmoid(-BETA * s[0]) - 0.5 * log_sigmoid(-BETA * s[1])
    ),
    LossType.SPPO_HARD: lambda s: (s[0] - 0.5 / BETA) ** 2 + (s[1] + 0.5 / BETA) ** 2,
}


def score(model: Any, ids: list[int], labels: list[int]) -> float:
    """Return the log-probability of the scored tokens, each computed from the plain logits."""
    import torch

    with torch.no_grad():
        rows = torch.log_softmax(model(input_ids=torch.tensor([ids])).logits[0].double(), dim=-1)
    return sum(float(rows[place - 1, label]) for place, label in enumerate(labels) if label != -100)


@pytest.fixture(scope="module")
def policy(model_folder: Path) -> Any:
    """The tiny model with an adapter that changes much."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(3)
    base = AutoModelForCausalLM.from_pretrained(model_folder)
    model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", r=4, target_modules="all-linear"))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    return model


def compared(policy: Any, reference: Any = None) -> list[Sides]:
    """Return the log-ratios of the pairs against a reference, or against the base, computed by hand."""
    found = []
    for pair in PAIRS:
        sides = [(pair["input_ids"], pair["labels"]), (pair["rejected_ids"], pair["rejected_labels"])]
        after = [score(policy, *side) for side in sides]
        with nullcontext() if reference is not None else policy.disable_adapter():
            before = [score(reference if reference is not None else policy, *side) for side in sides]
        counts = [sum(label != -100 for label in labels) for _, labels in sides]
        found.append((after[0] - before[0], after[1] - before[1], counts[0], counts[1], after[0]))
    return found


def trainer_for(policy: Any, folder: Path, losses: list[dict[str, str]], **more: Any) -> Any:
    """Return the trainer of the policy; its reference is a frozen copy of the policy's adapter."""
    from datasets import Dataset
    from whetstone_trainer.dpo import dpo_trainer

    return dpo_trainer(
        preference=PreferenceSpec.model_validate({"losses": losses, "beta": str(BETA)}),
        arguments={"output_dir": str(folder), "use_cpu": True, "report_to": "none", "bf16": False},
        model=policy,
        train_dataset=Dataset.from_list(PAIRS),
        processing_class=byte_tokenizer(),
        **more,
    )


def loss_against_base(policy: Any, folder: Path, losses: list[dict[str, str]]) -> float:
    """Return what the trainer computes for all pairs at once, with the base model as the reference."""
    from whetstone_trainer.dpo import drop_reference

    trainer = trainer_for(policy, folder, losses)
    drop_reference(trainer.model)
    return float(trainer.compute_loss(trainer.model, trainer.data_collator(PAIRS)).detach())


@pytest.mark.parametrize("loss", FORMULAS)
def test_loss_is_its_formula_over_the_scored_tokens(policy: Any, tmp_path: Path, loss: LossType) -> None:
    expected = sum(FORMULAS[loss](sides) for sides in compared(policy)) / len(PAIRS)
    assert loss_against_base(policy, tmp_path, [{"type": loss}]) == pytest.approx(expected, rel=1e-4)


def test_losses_are_added_up_with_their_weights(policy: Any, tmp_path: Path) -> None:
    sides = compared(policy)
    cross_entropy = -sum(one[4] for one in sides) / sum(one[2] for one in sides)
    preferred = sum(FORMULAS[LossType.SIGMOID](one) for one in sides) / len(sides)
    losses = [{"type": "Sigmoid", "weight": "0.75"}, {"type": "Sft", "weight": "2"}]
    expected = 0.75 * preferred + 2 * cross_entropy
    assert loss_against_base(policy, tmp_path, losses) == pytest.approx(expected, rel=1e-4)


def test_every_loss_type_has_a_formula() -> None:
    from whetstone_trainer.dpo import LOSSES

    assert {*FORMULAS, LossType.SFT} == set(LossType) == set(LOSSES)


def test_dropout_is_the_policys_adapters_alone(policy: Any, tmp_path: Path) -> None:
    import torch

    policy.peft_config["default"].lora_dropout = 0.1
    trainer = trainer_for(policy, tmp_path, [{"type": "Sigmoid"}])
    rates = {name: one.p for name, one in trainer.model.named_modules() if isinstance(one, torch.nn.Dropout)}
    policy.peft_config["default"].lora_dropout = 0.0
    policy.delete_adapter("ref")
    assert [name for name, rate in rates.items() if rate and not name.endswith("lora_dropout.default")] == []


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> dict[str, Path]:
    """Another model of the same vocabulary, and an adapter of another shape for each of the two."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(11)
    root = tmp_path_factory.mktemp("others")
    shutil.copytree(model_folder, root / "model")
    model = AutoModelForCausalLM.from_pretrained(model_folder)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    model.save_pretrained(root / "model")
    for name, folder in (("adapter", model_folder), ("adapter-of-model", root / "model")):
        shape = LoraConfig(task_type="CAUSAL_LM", r=2, lora_dropout=0.5, target_modules=["q_proj", "down_proj"])
        other = get_peft_model(AutoModelForCausalLM.from_pretrained(folder), shape)
        for key, parameter in other.named_parameters():
            if "lora_B" in key:
                torch.nn.init.normal_(parameter, std=0.3)
        other.save_pretrained(root / name)
    return {name: root / name for name in ("model", "adapter", "adapter-of-model")}


@pytest.mark.parametrize("kind", ["adapter", "model", "both"])
def test_gains_are_measured_against_the_reference_that_is_named(
    policy: Any, others: dict[str, Path], job: Job, kind: str
) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM
    from whetstone_trainer.dpo import drop_reference, load_reference_model

    adapter = others["adapter-of-model" if kind == "both" else "adapter"]
    base = others["model"] if kind != "adapter" else Path(job.values["baseModelPath"])
    places = {"adapterPath": None if kind == "model" else str(adapter)}
    places["modelPath"] = None if kind == "adapter" else str(base)
    job.values |= {"method": "DPO", "reference": places}
    reference = AutoModelForCausalLM.from_pretrained(base)
    if kind != "model":
        reference = PeftModel.from_pretrained(reference, adapter)
    expected = sum(FORMULAS[LossType.SIGMOID](one) for one in compared(policy, reference.eval())) / len(PAIRS)
    trainer = trainer_for(
        policy,
        job.folder,
        [{"type": "Sigmoid"}],
        ref_model=load_reference_model(job.config),
        reference_adapter=places["adapterPath"],
    )
    trainer.model.train()
    loss = float(trainer.compute_loss(trainer.model, trainer.data_collator(PAIRS)).detach())
    drop_reference(trainer.model)
    assert loss == pytest.approx(expected, rel=1e-4)
    assert abs(loss - math.log(2)) > 1e-3


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Job:
    """A job that learned from 8 pairs in 6 steps."""
    job = prefer(Job(tmp_path_factory.mktemp("undisturbed"), model_folder))
    assert job.run("train") == 0, job.log
    return job


def test_adapter_prefers_what_was_chosen_and_is_published_like_any(undisturbed: Job) -> None:
    metrics = undisturbed.report.result["metrics"]
    assert set(metrics) == {"trainLoss", "trainSeconds", "tokensPerSecond", "rewardAccuracy", "rewardMargin"}
    assert 0.5 < float(metrics["rewardAccuracy"]) <= 1
    assert float(metrics["rewardMargin"]) > 0
    probe = Probe.model_validate_json((undisturbed.output / "probe.json").read_bytes())
    raised = [sum(one.adapter_logprobs) - sum(one.base_logprobs) for one in probe.cases]
    assert max(abs(one) for one in raised) > 10 * probe.noise
    lineage = Lineage.model_validate_json((undisturbed.output / "lineage.json").read_bytes())
    assert lineage.recipe["method"] == "DPO"
    assert lineage.task_digests == [f"sha256:{number}" for number in range(8)]


@pytest.mark.long
def test_killed_and_resumed_run_gives_the_same_bytes(undisturbed: Job, job: Job) -> None:
    prefer(job)
    assert job.run("train", WHETSTONE_FAILPOINT="after-checkpoint:4") == -signal.SIGKILL
    assert job.run("train") == 0, job.log
    assert adapter_digest(job.output) == adapter_digest(undisturbed.output)


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Job:
    """A job that has published an adapter by supervised training."""
    job = Job(tmp_path_factory.mktemp("taught"), model_folder)
    job.values["lora"]["dropout"] = "0"
    assert job.run("train") == 0, job.log
    return job


def continued(job: Job, taught: Job) -> Job:
    """Turn a job into one that goes on from the taught adapter with pairs."""
    prefer(job)
    job.values["lora"]["dropout"] = "0"
    job.values["initAdapterPath"] = str(taught.output)
    job.values["initAdapterSource"] = "pvc://adapters/taught"
    return job


def test_pairs_go_on_from_a_taught_adapter_held_to_a_frozen_copy_of_it(
    taught: Job, make_job: Callable[[str], Job]
) -> None:
    whole, killed = continued(make_job("whole"), taught), continued(make_job("killed"), taught)
    assert whole.run("train") == 0, whole.log
    checkpoint = whole.workspace / "checkpoints" / "checkpoint-6"
    first = json.loads((checkpoint / "trainer_state.json").read_bytes())["log_history"][0]
    assert first["loss"] == pytest.approx(math.log(2), abs=1e-4)
    assert first["rewards/margins"] == pytest.approx(0, abs=1e-4)
    assert not (checkpoint / "ref").exists()
    assert not (whole.output / "ref").exists()
    lineage = Lineage.model_validate_json((whole.output / "lineage.json").read_bytes())
    assert lineage.recipe["initAdapter"] == adapter_digest(taught.output)

    assert killed.run("train", WHETSTONE_FAILPOINT="after-checkpoint:2") == -signal.SIGKILL
    assert killed.run("train") == 0, killed.log
    assert adapter_digest(killed.output) == adapter_digest(whole.output) != adapter_digest(taught.output)


def refer(job: Job, **places: str) -> None:
    """Name another reference."""
    job.values["reference"] = {f"{part}Path": folder for part, folder in places.items()} | {
        f"{part}Source": f"pvc://other/{part}" for part in places
    }


@pytest.mark.long
def test_taught_adapter_can_be_the_reference_of_a_new_one(taught: Job, job: Job) -> None:
    prefer(job)
    refer(job, adapter=str(taught.output))
    assert job.run("train", WHETSTONE_FAILPOINT="after-checkpoint:4") == -signal.SIGKILL
    assert job.run("train") == 0, job.log
    first = json.loads((job.workspace / "checkpoints/checkpoint-6/trainer_state.json").read_bytes())["log_history"][0]
    assert abs(first["loss"] - math.log(2)) > 1e-3
    assert not (job.output / "ref").exists()
    lineage = Lineage.model_validate_json((job.output / "lineage.json").read_bytes())
    assert lineage.recipe["preference"]["reference"] == {"adapter": adapter_digest(taught.output)}  # type: ignore[index]


def test_reference_that_does_not_fit_is_refused(job: Job, model_folder: Path) -> None:
    prefer(job)
    refer(job, adapter=str(job.folder / "absent"))
    with pytest.raises(
        UserError, match=r"^spec.preference.reference.adapter \(pvc://other/adapter\): .*does not exist"
    ):
        read_recipe(job.config)
    refer(job, model=str(job.folder / "absent"))
    with pytest.raises(UserError, match=r"^spec.preference.reference.model \(pvc://other/model\): "):
        read_recipe(job.config)
    other = job.folder / "other"
    shutil.copytree(model_folder, other)
    refer(job, model=str(other))
    same = read_recipe(job.config)
    assert set(same.content["preference"]["reference"]) == {"model"}
    tokenizer = (other / "tokenizer.json").read_text()
    (other / "tokenizer.json").write_text(tokenizer.replace("<|im_end|>", "<|other|>"))
    with pytest.raises(UserError, match=r"another vocabulary than spec.baseModel") as caught:
        read_recipe(job.config)
    assert caught.value.reason == "BaseMismatch"


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["DDP", "FSDP"])
def test_two_processes_learn_from_pairs_what_one_does(
    taught: Job, make_job: Callable[[str], Job], strategy: str
) -> None:
    losses = []
    for name, world in (("one", None), ("two", {"nodes": 1, "processesPerNode": 2, "strategy": strategy})):
        job = continued(make_job(name), taught)
        job.values["hyperparameters"]["microBatchSize"] = 1
        if world:
            job.values["world"] = world
        assert job.run("train") == 0, job.log
        losses.append([float(loss) for loss in re.findall(r"'loss': '?([0-9.e+-]+)", job.log)])
    assert len(losses[0]) == 6
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
