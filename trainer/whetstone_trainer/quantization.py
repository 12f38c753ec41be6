"""The frozen base in 4 or 8 bits by bitsandbytes, made from the unquantized checkpoint when it is loaded (QLoRA).

Only the training holds it so. Servers load the checkpoint as it is, so the adapter's effect is recorded on that, and a
merge adds to that.
"""

import json
from pathlib import Path
from typing import Any

from whetstone_api.jobs import TrainingConfig
from whetstone_api.training_backend import Backend
from whetstone_api.training_plan import BaseQuantization
from whetstone_api.vocabulary import Reason

from whetstone_trainer.errors import UserError


def require_quantizable(config: TrainingConfig) -> None:
    """Refuse a base that is quantized already, and a way to train that cannot hold one.

    Raises:
        UserError: `INVALID_SPEC`.
    """
    asked = f"spec.quantization is {config.quantization}"
    held = json.loads((Path(config.base_model_path) / "config.json").read_bytes()).get("quantization_config")
    if held:
        raise UserError(
            Reason.INVALID_SPEC,
            f"{asked}, and the weights of {config.base_model_source} are quantized already"
            f" ({held.get('quant_method', 'unknown method')}); leave quantization out, or name the unquantized model",
        )
    if config.backend is Backend.UNSLOTH and not config.on_accelerator:
        raise UserError(
            Reason.INVALID_SPEC,
            f"{asked}, which backend Unsloth can do on a GPU only; ask for one in spec.resources.limits, leave"
            " quantization out, or take backend TRL",
        )
    if config.world.strategy.shares_base and config.world.ranks > 1:
        raise UserError(
            Reason.INVALID_SPEC,
            f"{asked}, which {config.world.strategy} cannot share out; write DDP in spec.distributed.strategy, or leave"
            " quantization out",
        )


def quantized(kind: BaseQuantization, dtype: Any) -> dict[str, Any]:
    """Return the arguments that load a model quantized; none for an unquantized one.

    Args:
        kind: How it is held.
        dtype: Precision that it is computed in.
    """
    if kind.applied is None:
        return {}
    import torch
    from transformers import BitsAndBytesConfig

    if kind is BaseQuantization.NF4:
        config = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=dtype,
        )
    else:
        config = BitsAndBytesConfig(load_in_8bit=True)
    device = torch.cuda.current_device() if torch.cuda.is_available() else "cpu"
    return {"quantization_config": config, "device_map": {"": device}}
