"""A base that is shared out: what a process holds of it between and within its passes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from whetstone_api.training_distributed import Strategy
from whetstone_trainer.distributed import Place

pytestmark = pytest.mark.torch


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """A process group of this process."""
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def gathered(model: Any) -> list[bool]:
    """Whether each layer of the model is held whole."""
    from torch.distributed.tensor import DTensor

    layers = model.get_base_model().model.layers
    return [not any(isinstance(one, DTensor) for one in layer.parameters()) for layer in layers]


@pytest.mark.parametrize(("strategy", "kept"), [("FSDP", False), ("ZeRO2", True), ("ZeRO3", False)])
@pytest.mark.usefixtures("alone")
def test_layers_are_kept_until_the_backward_pass_where_the_strategy_says_so(
    model_folder: Path, strategy: str, kept: bool
) -> None:
    import torch
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM
    from whetstone_trainer.shards import sharded, share_out_again

    base = AutoModelForCausalLM.from_pretrained(model_folder)
    model = sharded(base, LoraConfig(target_modules="all-linear"), Place(), strategy=Strategy(strategy))
    none, all_layers = [False] * len(gathered(model)), [True] * len(gathered(model))
    assert gathered(model) == none
    ids = torch.tensor([[1, 2, 3]])
    loss = model(input_ids=ids, labels=ids).loss
    assert gathered(model) == (all_layers if kept else none)
    loss.backward()
    assert gathered(model) == none
    with torch.no_grad():
        model(input_ids=ids)
    share_out_again(model)
    assert gathered(model) == none
