"""`Auto`: shares of the base model only where the whole does not fit."""

from typing import Any

import pytest
from support.trainer_job import Job
from whetstone_api.jobs import TrainingConfig
from whetstone_api.training_data import DatasetReport
from whetstone_artifacts.training_choice import memory_bytes
from whetstone_trainer.memory_estimate import expect
from whetstone_trainer.plan import Device, make_plan
from whetstone_trainer.prepare import prepare_data
from whetstone_trainer.recipe import Settings, read_recipe
from whetstone_trainer.strategy import expected, settled

pytestmark = pytest.mark.torch
PLENTY, NOTHING = memory_bytes("80Gi"), memory_bytes("1Mi")


def asked(job: Job, **world: Any) -> tuple[TrainingConfig, Settings, DatasetReport]:
    """Return a job on GPUs of these processes, with what decides its strategy."""
    job.values |= {"onAccelerator": True, "world": {"processesPerNode": 2, **world}}
    recipe = read_recipe(job.config)
    return job.config, recipe.settings, prepare_data(job.config, recipe).dataset


@pytest.mark.parametrize(("free", "strategy"), [(PLENTY, "DDP"), (NOTHING, "FSDP"), (None, "DDP")])
def test_base_is_shared_out_only_where_the_whole_does_not_fit(job: Job, free: int | None, strategy: str) -> None:
    config, settings, dataset = asked(job)
    found = settled(config, settings, dataset, free=free)
    assert found.world.strategy == strategy
    assert f"({strategy})" in make_plan(found, settings, dataset, Device(is_gpu=True, free=free)).reason


@pytest.mark.parametrize("strategy", ["DDP", "FSDP", "ZeRO2", "ZeRO3"])
def test_strategy_that_the_spec_names_stays(job: Job, strategy: str) -> None:
    config, settings, dataset = asked(job, strategy=strategy)
    for free in (PLENTY, NOTHING):
        assert settled(config, settings, dataset, free=free).world.strategy == strategy


def test_estimate_is_of_the_most_that_a_strategy_holds(job: Job) -> None:
    """ZeRO2 has all layers at the end of a forward pass; ZeRO3 one at a time, as FSDP."""
    held = {}
    for strategy in ("DDP", "FSDP", "ZeRO2", "ZeRO3"):
        config, settings, dataset = asked(job, strategy=strategy)
        outlook = expect(config, settings, dataset)
        assert outlook is not None
        held[strategy] = outlook.estimate.to_wire()
    assert held["ZeRO2"] == held["DDP"] != held["FSDP"] == held["ZeRO3"]


def test_one_process_has_nothing_to_share(job: Job) -> None:
    config, settings, dataset = asked(job, processesPerNode=1)
    assert settled(config, settings, dataset, free=NOTHING).world.strategy == "DDP"


def test_quantized_base_is_never_shared_out(job: Job) -> None:
    job.values["quantization"] = "NF4"
    config, settings, dataset = asked(job)
    assert settled(config, settings, dataset, free=NOTHING).world.strategy == "DDP"


def test_prepare_expects_what_the_named_memory_allows(job: Job) -> None:
    config, settings, dataset = asked(job)
    assert expected(config, settings, dataset).world.strategy == "DDP"
    job.values["plan"] = {"deviceMemory": "1Mi"}
    assert expected(job.config, settings, dataset).world.strategy == "FSDP"
