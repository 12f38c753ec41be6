"""What a pod says of its model and of an adapter's rank, and which ranks its own engine takes."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.adapters import lora_tensors, make_adapter
from unit.server.conftest import Pod
from whetstone_artifacts.rank import read_rank
from whetstone_server.settings import read_settings


async def test_pod_tells_the_rank_of_what_it_loads_and_of_what_it_refuses(pod: Pod) -> None:
    high = pod.adapter("high", config={"r": 32}, tensors=lora_tensors(rank=32))
    pod.want(pod.adapter("low"), high)
    state = await pod.settled()
    assert [(one.name, one.rank, one.reason) for one in state.adapters] == [
        ("low", 4, ""),
        ("high", 32, "RankTooHigh"),
    ]


@pytest.mark.parametrize(("own", "reason"), [(16, "RankTooHigh"), (32, "")])
async def test_bound_of_the_pods_engine_counts_whatever_the_others_take(pod: Pod, own: int, reason: str) -> None:
    pod.sidecar._loader._settings = replace(pod.settings, max_rank=own)
    pod.want(pod.adapter("high", config={"r": 32}, tensors=lora_tensors(rank=32)), max_rank=512)
    [state] = (await pod.settled()).adapters
    assert state.reason == reason


def test_bound_comes_from_the_pods_environment() -> None:
    assert read_settings({"WHETSTONE_MAX_RANK": "64"}).max_rank == 64
    assert read_settings({}).max_rank is None


@pytest.mark.parametrize(
    ("config", "rank"),
    [
        ({}, 4),
        ({"rank_pattern": {"q_proj": 64, "k_proj": 2}}, 64),
        ({"r": "8"}, None),
        ({"r": 0}, None),
        ({"rank_pattern": [1]}, None),
    ],
)
def test_rank_is_the_highest_of_any_module(tmp_path: Path, config: dict[str, object], rank: int | None) -> None:
    make_adapter(tmp_path, config=config)
    assert read_rank(tmp_path) == rank


def test_folder_without_a_configuration_has_no_rank(tmp_path: Path) -> None:
    assert read_rank(tmp_path) is None


async def test_pod_tells_the_sizes_of_its_model_even_if_the_engine_never_starts(pod: Pod) -> None:
    pod.engine.healthy = False
    pod.want()
    state = await pod.until(lambda state: state.model is not None)
    assert state.model is not None
    assert (state.model.layers, state.model.vocabulary, state.engine_healthy) == (2, 64, False)
