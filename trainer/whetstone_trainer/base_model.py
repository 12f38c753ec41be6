"""The base model in memory, and the shape of the adapter on it."""

from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel
from transformers import AutoModelForCausalLM
from whetstone_api.jobs import TrainingConfig
from whetstone_api.training_plan import Attention
from whetstone_api.vocabulary import Reason

from whetstone_trainer.device import require_isolation
from whetstone_trainer.errors import UserError
from whetstone_trainer.init_adapter import folds
from whetstone_trainer.kernels import KERNELS
from whetstone_trainer.plan import Plan
from whetstone_trainer.quantization import quantized
from whetstone_trainer.recipe import Settings

UNSERVABLE_MODULES = ("lm_head", "embed_tokens")


def precision() -> torch.dtype:
    """Return what an unquantized model is computed in: float32 on a CPU, bfloat16 on an accelerator."""
    return torch.bfloat16 if torch.cuda.is_available() else torch.float32


def load_model(config: TrainingConfig, plan: Plan | None = None) -> Any:
    """Load the base model.

    Args:
        config: The job's configuration.
        plan: How the device is used; None for a model to measure.

    Raises:
        UserError: `INVALID_SPEC`: the plan cannot be done with this model.
    """
    dtype = precision()
    # PyTorch's own kernel is the default of all models that can use it.
    kernel = plan.attention if plan and plan.attention != KERNELS[Attention.SDPA] else None
    model: Any = AutoModelForCausalLM.from_pretrained(
        config.base_model_path,
        dtype=dtype,
        attn_implementation=kernel,
        local_files_only=True,
        **(quantized(config.quantization, dtype) if plan else {}),
    )
    if plan and plan.padding_free:
        require_isolation(model)
    return model


def is_served(config: TrainingConfig) -> bool:
    """Return whether servers have the base model as it is trained on: neither quantized nor with an adapter in it."""
    return config.quantization.applied is None and not folds(config)


def served_model(config: TrainingConfig, model: Any, adapter: Path) -> Any:
    """Return the model as servers will have it: they do not quantize as the training does, and add one adapter alone.

    The base that is loaded anew takes what the device has left, then main memory, then the workspace.

    Args:
        config: The job's configuration.
        model: The trained model.
        adapter: Folder with the saved adapter.
    """
    if is_served(config):
        return model
    offload = {"device_map": "auto", "offload_folder": str(Path(config.workspace_path) / "offload")}
    base = AutoModelForCausalLM.from_pretrained(
        config.base_model_path,
        dtype=precision(),
        local_files_only=True,
        **(offload if torch.cuda.is_available() else {}),
    )
    return PeftModel.from_pretrained(base, str(adapter))


def lora_config(config: TrainingConfig, settings: Settings, model: Any) -> LoraConfig:
    """Return the adapter's shape.

    Raises:
        UserError: `INVALID_SPEC` for modules that the model has not, or that no engine can serve.
    """
    names = [name for name, _ in model.named_modules()]
    for target in config.lora.target_modules or []:
        if target.rsplit(".", 1)[-1] in UNSERVABLE_MODULES:
            raise UserError(
                Reason.INVALID_SPEC,
                f"spec.lora.targetModules names {target}, which cannot be hot-loaded; name linear layers of the blocks",
            )
        if not any(name == target or name.endswith(f".{target}") for name in names):
            linear = sorted({n.rsplit(".", 1)[-1] for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)})
            raise UserError(
                Reason.INVALID_SPEC,
                f"spec.lora.targetModules names {target}, which {config.base_model_source} does not have; its linear"
                f" layers are {', '.join(linear)}",
            )
    return LoraConfig(
        task_type="CAUSAL_LM",
        r=config.lora.rank,
        lora_alpha=config.lora.alpha,
        lora_dropout=float(settings.dropout),
        target_modules=sorted(config.lora.target_modules) if config.lora.target_modules else "all-linear",
        bias="none",
        use_rslora=config.lora.rs_lora,
    )
