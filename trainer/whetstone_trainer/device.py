"""What the trainer finds of its device, and what it does to a model there."""

import gc
import logging
import os
import shutil
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from peft.helpers import disable_input_dtype_casting
from whetstone_api.vocabulary import Reason

from whetstone_trainer.cpus import memory_limit
from whetstone_trainer.errors import UserError
from whetstone_trainer.plan import Device, Plan

log = logging.getLogger(__name__)

COMPILE_CACHE = "compile-cache"
FLASH_CAPABILITY = 8
"""First generation of NVIDIA's devices that `flash-attn` supports."""
ISOLATION = 1e-2
"""Largest difference of a row's logits, relative to their size, alone and behind another row."""
MAX_GRAPHS = 64
"""Graphs of one layer that are kept; every layer and every kind of lengths may need its own."""


def find_device(*, sharing: int = 1) -> Device:
    """Return what this process trains on.

    Args:
        sharing: Processes of this pod that train, between which its main memory is shared.
    """
    if not torch.cuda.is_available():
        limit = memory_limit()
        return Device(is_gpu=False, free=None if limit is None else limit // sharing)
    free, _ = torch.cuda.mem_get_info()
    major, _ = torch.cuda.get_device_capability()
    return Device(
        is_gpu=True,
        free=free,
        flash_attention=major >= FLASH_CAPABILITY and find_spec("flash_attn") is not None,
        compiler=_has_compiler(),
    )


def _has_compiler() -> bool:
    """Return whether compiled kernels can be built: Triton makes a C module of Python's for each."""
    compilers = (os.environ.get("CC") or "cc", "gcc", "clang")
    return any(map(shutil.which, compilers)) and (Path(sysconfig.get_path("include")) / "Python.h").is_file()


def release_memory() -> None:
    """Give back what a training that ran out of memory held."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


@contextmanager
def lean(model: Any, plan: Plan) -> Iterator[None]:
    """Train without what takes time and memory and changes nothing.

    PEFT raises the input of each matrix to the adapter's float32, and autocast takes it back to what it was: those
    copies are left out, as PEFT leaves them out on a quantized base. Without autocast, on CPUs, all stays.

    Args:
        model: Model with its adapter.
        plan: How the device is used.
    """
    allowed = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(plan.cudnn)
    try:
        with disable_input_dtype_casting(model, active=torch.cuda.is_available()):
            yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(allowed)


def compile_layers(model: Any, workspace: Path) -> None:
    """Compile each layer of a model, which takes a part of the time that the whole model would take.

    Args:
        model: Model with or without an adapter.
        workspace: Folder that outlives the pod; what is compiled is kept there.
    """
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(workspace / COMPILE_CACHE))
    os.environ.setdefault("TRITON_CACHE_DIR", str(workspace / COMPILE_CACHE / "triton"))
    torch._dynamo.config.cache_size_limit = MAX_GRAPHS  # noqa: SLF001 - there is no public name for it
    layers = layers_of(model)
    for layer in layers:
        layer.compile()
    log.info("%d layers are compiled", len(layers))


def uncompile_layers(model: Any) -> None:
    """Let the layers of a model run as they are again."""
    for layer in layers_of(model):
        layer._compiled_call_impl = None  # noqa: SLF001 - what `Module.compile` sets, and there is no way back


def layers_of(model: Any) -> list[Any]:
    """Return the layers of a decoder: the longest list of modules in it."""
    lists = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList)]
    return list(max(lists, key=len, default=[]))


def kernel_of(model: Any) -> str:
    """Return the attention kernel of a model, as transformers names it."""
    return str(getattr(model.config, "_attn_implementation", None) or "eager")


def require_isolation(model: Any) -> None:
    """Check that rows in one sequence do not attend to each other where positions start anew.

    Args:
        model: Model as it will be trained.

    Raises:
        UserError: `INVALID_SPEC`.
    """
    device = next(model.parameters()).device
    size = min(int(model.get_input_embeddings().num_embeddings), 100)
    first, second = torch.arange(0, 8) % size, torch.arange(8, 14) % size
    joined = torch.cat([first, second])[None].to(device)
    positions = torch.cat([torch.arange(len(first)), torch.arange(len(second))])[None].to(device)
    was_training = model.training
    model.eval()
    with torch.inference_mode():
        alone = model(input_ids=second[None].to(device), use_cache=False).logits[0]
        behind = model(input_ids=joined, position_ids=positions, use_cache=False).logits[0, len(first) :]
    model.train(was_training)
    difference = float((alone - behind).abs().max() / alone.abs().max())
    if not difference <= ISOLATION * (1 if alone.dtype == torch.float32 else 4):
        raise UserError(
            Reason.INVALID_SPEC,
            "spec.plan.packing is PaddingFree, and with this model and attention kernel rows would attend to each other"
            f" (their output changes by {difference:.1%}); write Padded",
        )
