"""FSDP for LoRA: each process holds a share of the frozen base, and all of the adapter.

PyTorch's `fully_shard` (FSDP2) gathers one layer at a time for its forward and backward pass. The adapter is left out
of it: it is small, its gradients are summed as in DDP, and checkpoints hold what they hold there.
"""

import logging
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from whetstone_api.training_distributed import Strategy

from whetstone_trainer.distributed import Place

log = logging.getLogger(__name__)


def sharded(model: Any, shape: LoraConfig | None, place: Place, *, strategy: Strategy) -> Any:
    """Return the model with its adapter on a base that is shared out.

    Args:
        model: The base model, or a PEFT model with an adapter to go on from.
        shape: Shape of a new adapter; None where the model has one.
        place: Which process this is.
        strategy: How the base is shared out.
    """
    with_adapter = model if shape is None else get_peft_model(model, shape)
    shard_base(with_adapter, place, strategy=strategy)
    return with_adapter


def shard_base(model: Any, place: Place, *, strategy: Strategy) -> None:
    """Shard the base of a PEFT model over all processes, in place, and move it to this process's device.

    Args:
        model: PEFT model whose trainable parameters are the adapter's; it may lie in main memory.
        place: Which process this is; the process group exists.
        strategy: Says whether a layer is let go of after its forward pass.
    """
    device = torch.device("cuda", place.local_rank) if torch.cuda.is_available() else torch.device("cpu")
    mesh = init_device_mesh(device.type, (place.size,))
    adapter = {parameter for parameter in model.parameters() if parameter.requires_grad}
    for parameter in adapter:
        parameter.data = parameter.data.to(device)
    # None: as PyTorch does it for FSDP, which keeps what belongs to no layer.
    again = None if strategy.gathers_twice else False
    blocks = set(model.get_base_model()._no_split_modules or ())  # noqa: SLF001 - accelerate asks for it, too
    for module in [module for module in model.modules() if type(module).__name__ in blocks]:
        fully_shard(module, mesh=mesh, reshard_after_forward=again, ignored_params=adapter)
    fully_shard(model, mesh=mesh, reshard_after_forward=again, ignored_params=adapter)
    base = {name: parameter for name, parameter in model.named_parameters() if isinstance(parameter, DTensor)}
    held = sum(parameter.to_local().numel() for parameter in base.values())
    log.info("this process holds %d of the base's %d parameters", held, sum(map(torch.numel, base.values())))
    # DDP's start copies all parameters from rank 0 to the others, which have other shares.
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, list(base))  # noqa: SLF001 - the only way


def share_out_again(model: Any) -> None:
    """Let go of what an evaluation has gathered and no backward pass gives back.

    A process that saves a checkpoint would do it alone, and then ask the others for what they still hold.

    Args:
        model: Any model; only one that is `sharded` changes.
    """
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def sum_gradients(trainer: Any, place: Place) -> None:
    """Let a trainer sum the gradients of the adapter over all processes by DDP.

    Accelerate, which would do it, takes no model with shares on GPUs; of it only the mixed precision remains.

    Args:
        trainer: A trainer of a model that is `sharded`, before its training.
        place: Which process this is.
    """
    model = trainer.accelerator.prepare_model(trainer.model, device_placement=False, evaluation_mode=True)
    devices = [place.local_rank] if torch.cuda.is_available() else None
    # As transformers sets it for PEFT models: experts that no token of a step went to have no gradient.
    trainer.model_wrapped = DistributedDataParallel(model, device_ids=devices, find_unused_parameters=True)
