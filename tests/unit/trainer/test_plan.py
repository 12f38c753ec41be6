"""How the device is used: chosen from its memory, fixed by the spec, and without effect on what is learned."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.model_facts import LLAMA_3B
from support.trainer_job import Job, chat_row, train_here
from whetstone_api.training_data import DatasetReport, Lengths
from whetstone_artifacts.training_choice import memory_bytes
from whetstone_trainer import memory_estimate
from whetstone_trainer import plan as plans
from whetstone_trainer.errors import UserError
from whetstone_trainer.memory_estimate import expect
from whetstone_trainer.plan import Device, Plan, make_plan
from whetstone_trainer.recipe import read_recipe

MakeJob = Callable[[str], Job]
GIB = 1 << 30
CPU, H100 = Device(is_gpu=False), Device(is_gpu=True, free=78 * GIB, compiler=True)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny model passes for one of three billion parameters."""
    for module in (plans, memory_estimate):
        monkeypatch.setattr(module, "read_model_facts", lambda folder: LLAMA_3B)


def data(longest: int, *, rows: int = 1000) -> DatasetReport:
    return DatasetReport(rows=rows, tokens=rows * longest, loss_tokens=rows, longest=longest)


def planned(job: Job, device: Device, dataset: DatasetReport, **fixed: Any) -> Plan:
    job.values["plan"] = fixed
    return make_plan(job.config, read_recipe(job.config).settings, dataset, device)


def test_on_a_cpu_without_a_limit_all_rows_go_at_once_as_they_are(job: Job) -> None:
    chosen = planned(job, CPU, data(100)).chosen()
    assert (chosen.micro_batch_size, chosen.gradient_checkpointing, chosen.compiled) == (4, False, False)
    assert (chosen.packing, chosen.attention) == ("Padded", "sdpa")


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize(("free", "micro", "again"), [(256, 8, False), (72, 2, False), (28, 2, True), (4, 1, True)])
def test_on_a_cpu_the_limit_of_the_container_decides(job: Job, free: int, micro: int, again: bool) -> None:
    job.values["hyperparameters"]["batchSize"] = 8
    found = planned(job, Device(is_gpu=False, free=free * GIB), data(2048))
    assert (found.micro_batch_size, found.checkpointing) == (micro, again), found.reason
    assert f"{free}.00Gi" in found.reason


@pytest.mark.usefixtures("large")
def test_prepare_refuses_what_no_plan_brings_into_the_container(job: Job) -> None:
    settings = read_recipe(job.config).settings

    def least(**plan: Any) -> int:
        job.values["plan"] = plan
        found = expect(job.config, settings, data(2048), limit=256 * GIB)
        assert found is not None
        return memory_bytes(found.estimate.least)

    enough = least()
    assert least(microBatchSize=4) > enough
    job.values["plan"] = {}
    for limit, warns in ((enough * 2, False), (int(enough * 0.9), True)):
        found = expect(job.config, settings, data(2048), limit=limit)
        assert found is not None
        assert (found.warning is not None) is warns
        assert found.warning is None or "the kernel may kill the training" in found.warning
    weights = 4 * LLAMA_3B.parameters
    with pytest.raises(UserError, match=r"spec.resources.limits.memory leaves .*raise spec.resources") as caught:
        expect(job.config, settings, data(2048), limit=weights)
    assert caught.value.reason == "DeviceTooSmall"
    job.values["onAccelerator"] = True
    found = expect(job.config, settings, data(2048), limit=weights)
    assert found is not None
    assert found.warning is None


@pytest.mark.usefixtures("large")
def test_where_the_adapted_modules_are_not_known_prepare_only_warns(job: Job) -> None:
    settings = read_recipe(job.config).settings
    job.values["lora"]["targetModules"] = ["wqkv"]
    found = expect(job.config, settings, data(2048), limit=GIB)
    assert found is not None
    assert found.warning is not None


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize(
    ("batch", "longest", "free", "micro", "again"),
    [
        (32, 210, 78, 32, False),
        (8, 2048, 78, 8, False),
        (8, 2048, 44, 4, False),
        (1, 8192, 78, 1, False),
        (8, 8192, 24, 4, True),
        (8, 8192, 12, 1, True),
    ],
)
def test_on_a_gpu_its_free_memory_decides(
    job: Job, batch: int, longest: int, free: int, micro: int, again: bool
) -> None:
    job.values["hyperparameters"]["batchSize"] = batch
    job.values["lora"] = {"rank": 16, "alpha": 32}
    found = planned(job, Device(is_gpu=True, free=free * GIB), data(longest))
    assert (found.micro_batch_size, found.checkpointing) == (micro, again), found.reason
    assert f"{free}.00Gi are free" in found.reason


@pytest.mark.usefixtures("large")
def test_what_is_fixed_is_done(job: Job) -> None:
    fixed = {"microBatchSize": 2, "gradientCheckpointing": "Enabled", "packing": "PaddingFree", "attention": "Eager"}
    chosen = planned(job, H100, data(100), **fixed, compile="Enabled").chosen()
    assert (chosen.micro_batch_size, chosen.gradient_checkpointing, chosen.compiled) == (2, True, True)
    assert (chosen.packing, chosen.attention) == ("PaddingFree", "eager")


@pytest.mark.usefixtures("large")
def test_a_kernel_that_keeps_rows_apart_needs_no_padding(job: Job) -> None:
    chosen = planned(job, Device(is_gpu=True, free=GIB, flash_attention=True), data(100)).chosen()
    assert (chosen.packing, chosen.attention) == ("PaddingFree", "flash_attention_2")


@pytest.mark.usefixtures("large")
def test_first_steps_show_whether_compiling_pays_where_there_is_a_compiler(job: Job) -> None:
    chosen = planned(job, H100, data(2048))
    assert (chosen.compiled, chosen.tries_compiling) == (False, True)
    for compile_, compiled in (("Enabled", True), ("Disabled", False)):
        chosen = planned(job, H100, data(2048), compile=compile_)
        assert (chosen.compiled, chosen.tries_compiling) == (compiled, False)
    without = planned(job, Device(is_gpu=True, free=78 * GIB), data(2048))
    assert (without.compiled, without.tries_compiling) == (False, False)
    assert "no C compiler" in without.reason
    assert not planned(job, CPU, data(2048)).tries_compiling


@pytest.mark.usefixtures("large")
def test_cudnn_computes_attention_only_where_most_rows_are_equally_long(job: Job) -> None:
    unequal, truncated = (
        data(2048).model_copy(update={"lengths": Lengths(p50=median, p90=2048, p99=2048)}) for median in (900, 2048)
    )
    assert [planned(job, H100, found).cudnn for found in (unequal, truncated, data(2048))] == [False, True, True]
    assert "plans anew for every length" in planned(job, H100, unequal).reason
    assert not planned(job, H100, truncated, attention="Eager").cudnn
    assert "cuDNN" not in planned(job, CPU, truncated).reason


@pytest.mark.parametrize(
    ("device", "fixed", "words"),
    [
        (CPU, {"attention": "FlashAttention2"}, "spec.plan.attention is FlashAttention2, which needs a GPU"),
        (CPU, {"compile": "Enabled"}, "spec.plan.compile is Enabled, which needs a GPU"),
        (Device(is_gpu=True), {"compile": "Enabled"}, "a C compiler in the trainer's image"),
    ],
)
def test_what_cannot_be_done_is_refused(job: Job, device: Device, fixed: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=r"spec\.plan") as caught:
        planned(job, device, data(100), **fixed)
    assert caught.value.reason == "InvalidSpec"
    assert words in caught.value.message


def test_pairs_are_not_packed(job: Job) -> None:
    job.values["method"] = "DPO"
    with pytest.raises(UserError, match="which DPO cannot do"):
        planned(job, CPU, data(100), packing="PaddingFree")


@pytest.mark.usefixtures("large")
def test_memory_is_estimated_for_the_longest_row_and_held_to_the_device(job: Job) -> None:
    job.values |= {"onAccelerator": True, "plan": {}}
    settings = read_recipe(job.config).settings
    short, long = (expect(job.config, settings, data(longest)) for longest in (512, 8192))
    assert short is not None
    assert long is not None
    assert sum(part.bytes for part in short.estimate.basis) < sum(part.bytes for part in long.estimate.basis)
    assert "rows of 8192 tokens" in long.estimate.plan
    job.values["plan"] = {"deviceMemory": "24Gi"}
    fitting = expect(job.config, settings, data(8192))
    assert fitting is not None
    assert sum(part.bytes for part in fitting.estimate.basis) < 24 * GIB
    job.values["plan"] = {"deviceMemory": "8G"}
    with pytest.raises(UserError, match=r"spec.plan.deviceMemory is 8G, and rows of 8192 tokens take") as caught:
        expect(job.config, settings, data(8192))
    assert caught.value.reason == "DeviceTooSmall"


@pytest.mark.usefixtures("large")
def test_operations_are_those_of_all_steps(job: Job) -> None:
    job.values |= {"onAccelerator": True, "plan": {"gradientCheckpointing": "Disabled"}}
    given = job.values["hyperparameters"]

    def told(**changes: Any) -> tuple[int | None, float]:
        job.values["hyperparameters"] = {**given, "maxSteps": None, "batchSize": 8, **changes}
        found = expect(job.config, read_recipe(job.config).settings, data(512))
        assert found is not None
        return found.estimate.tokens, float(found.estimate.operations or 0)

    once = told(epochs=1)
    assert once[0] == 1000 * 512
    assert told(epochs=3) == (3 * once[0], pytest.approx(3 * once[1], rel=1e-3))
    assert told(epochs=None, maxSteps=10) == (10 * 8 * 512, pytest.approx(once[1] * 80 / 1000, rel=1e-3))
    job.values["plan"] = {"gradientCheckpointing": "Enabled"}
    assert told(epochs=1)[1] == pytest.approx(1.5 * once[1], rel=1e-3)
    job.values |= {"plan": {"gradientCheckpointing": "Disabled"}, "method": "DPO"}
    # As many tokens, in rows half as long on each side, and a reference that reads them too.
    assert 1.4 * once[1] < told(epochs=1)[1] < 1.5 * once[1]


@pytest.mark.usefixtures("large")
def test_reference_of_pairs_is_counted_as_it_is_loaded(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whetstone_trainer.reference.read_model_facts", lambda _: LLAMA_3B)
    job.values |= {"onAccelerator": True, "plan": {}, "method": "DPO"}
    settings = read_recipe(job.config).settings

    def reference(**values: Any) -> int:
        job.values |= {"initAdapterPath": None, "initAdapterMode": "Continue", "reference": None, **values}
        found = expect(job.config, settings, data(512))
        assert found is not None
        return {part.name: part.bytes for part in found.estimate.basis}.get("reference", 0)

    (tmp_path / "adapter_config.json").write_text('{"r": 64}')
    folder, stacked = str(tmp_path), {"initAdapterPath": str(tmp_path), "initAdapterMode": "MergeThenNew"}
    assert reference() == reference(**stacked) == 0
    copy = reference(initAdapterPath=folder)
    assert copy > 0
    assert reference(reference={"adapterPath": folder}) == copy * 64 // job.config.lora.rank
    assert reference(reference={"modelPath": folder}) == 2 * LLAMA_3B.parameters
    assert reference(**stacked, reference={"adapterPath": folder}) == 2 * LLAMA_3B.parameters


ROWS = [chat_row("q" * (number % 5), f"a{number}" * (1 + number % 7)) for number in range(12)]
"""Rows of unequal lengths and with unequal shares of learned tokens."""


def trained(job: Job, **fixed: Any) -> tuple[Any, list[float]]:
    """Train a job in this process; return the result and the loss of each step."""
    job.write(ROWS)
    job.values["lora"]["dropout"] = "0"
    job.values["hyperparameters"] = {"epochs": 2, "batchSize": 4, "learningRate": "1e-2"}
    job.values["plan"] = fixed
    result = train_here(job)
    state = json.loads((job.workspace / "checkpoints" / "checkpoint-6" / "trainer_state.json").read_bytes())
    return result, [entry["loss"] for entry in state["log_history"] if "loss" in entry]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> list[float]:
    """Losses of a training with all rows of a step at once."""
    pytest.importorskip("torch")
    result, losses = trained(Job(tmp_path_factory.mktemp("plain"), model_folder))
    assert result.plan.micro_batch_size == 4
    assert losses[-1] < losses[0]
    return losses


@pytest.mark.torch
@pytest.mark.parametrize(
    "fixed",
    [
        {"microBatchSize": 1},
        {"gradientCheckpointing": "Enabled"},
        {"packing": "PaddingFree"},
        {"packing": "PaddingFree", "attention": "Eager", "microBatchSize": 2},
    ],
    ids=lambda fixed: "-".join(fixed),
)
def test_no_plan_changes_what_is_learned(
    job: Job, plain: list[float], fixed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from trl import SFTTrainer

    step, seen = SFTTrainer.training_step, set()

    def watched(trainer: Any, model: Any, inputs: Any, *more: Any) -> Any:
        seen.add((len(inputs["input_ids"]), "attention_mask" in inputs, model.is_gradient_checkpointing))
        return step(trainer, model, inputs, *more)

    monkeypatch.setattr(SFTTrainer, "training_step", watched)
    result, losses = trained(job, **fixed)
    packed = fixed.get("packing") == "PaddingFree"
    again = fixed.get("gradientCheckpointing") == "Enabled"
    assert seen == {(1 if packed else fixed.get("microBatchSize", 4), not packed, again)}
    assert losses == pytest.approx(plain, abs=2e-4)
    assert result.plan.micro_batch_size == fixed.get("microBatchSize", 4)
    assert result.plan.packing == fixed.get("packing", "Padded")
    assert result.plan.attention == fixed.get("attention", "SDPA").lower()


@pytest.mark.torch
@pytest.mark.parametrize("on_gpu", [True, False])
def test_out_of_memory_halves_the_micro_batch_and_goes_on(
    job: Job, plain: list[float], monkeypatch: pytest.MonkeyPatch, on_gpu: bool
) -> None:
    import torch
    from trl import SFTTrainer

    step = SFTTrainer.training_step

    def limited(trainer: Any, model: Any, inputs: Any, *more: Any) -> Any:
        if len(inputs["input_ids"]) > 1 and trainer.state.global_step >= 2:
            if on_gpu:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB")
            torch.empty(1 << 60, dtype=torch.uint8)
        return step(trainer, model, inputs, *more)

    monkeypatch.setattr(SFTTrainer, "training_step", limited)
    result, losses = trained(job)
    assert result.plan.micro_batch_size == 1
    assert result.plan.reason.startswith("micro-batch 2 ran out of memory, so 1 with activations kept")
    assert losses == pytest.approx(plain, abs=2e-4)


@pytest.mark.torch
def test_out_of_memory_with_all_fixed_ends_for_good(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from trl import SFTTrainer

    def never(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB")

    monkeypatch.setattr(SFTTrainer, "training_step", never)
    with pytest.raises(UserError, match="leaves nothing smaller") as caught:
        trained(job, microBatchSize=2, gradientCheckpointing="Enabled")
    assert caught.value.reason == "DeviceTooSmall"


@pytest.mark.torch
@pytest.mark.parametrize("asked", ["Enabled", "Auto"])
def test_where_compiling_fails_the_training_goes_on_without(
    job: Job, plain: list[float], monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """The image has no compiler for CPUs, so that compiling fails for real; with `Auto` after the first steps."""
    from whetstone_trainer import compile_trial, fitting

    monkeypatch.setattr(fitting, "find_device", lambda **_: Device(is_gpu=True, free=GIB, compiler=True))
    for name, value in (("WARM_UP", 1), ("TIMED", 1), ("COMPILE_SECONDS", 0.0)):
        monkeypatch.setattr(compile_trial, name, value)
    result, losses = trained(job, compile=asked, microBatchSize=4, gradientCheckpointing="Disabled")
    assert not result.plan.compiled
    assert result.plan.reason.startswith("compiling failed (")
    assert losses == pytest.approx(plain, abs=2e-4)
    assert json.loads((job.workspace / "plan.json").read_bytes())["compiled"] is False


@pytest.mark.torch
def test_rows_that_would_attend_to_each_other_are_not_packed(job: Job) -> None:
    from whetstone_trainer.base_model import load_model
    from whetstone_trainer.device import require_isolation

    model = load_model(job.config)
    require_isolation(model)
    forward = model.forward
    model.forward = lambda **values: forward(**{k: v for k, v in values.items() if k != "position_ids"})
    with pytest.raises(UserError, match="rows would attend to each other"):
        require_isolation(model)


@pytest.mark.torch
def test_layers_are_found_and_compiled(job: Job) -> None:
    from whetstone_trainer.base_model import load_model
    from whetstone_trainer.device import layers_of

    model = load_model(job.config)
    assert [type(layer).__name__ for layer in layers_of(model)] == ["LlamaDecoderLayer"] * 2
    assert layers_of(SimpleNamespace(modules=list)) == []


@pytest.mark.torch
def test_what_is_compiled_outlives_the_pod(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    from whetstone_trainer.base_model import load_model
    from whetstone_trainer.device import compile_layers, layers_of

    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    model = load_model(job.config)
    compile_layers(model, job.workspace)
    assert all(layer._compiled_call_impl for layer in layers_of(model))
    places = [Path(os.environ[name]) for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")]
    assert all(place.is_relative_to(job.workspace) for place in places)
