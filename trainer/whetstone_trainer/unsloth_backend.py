"""The base model with an adapter on it, by Unsloth: the same LoRA with Unsloth's kernels under it.

Unsloth changes transformers, peft and trl when it is imported, so it must come before them. Rows, masks,
checkpoints, probe and publication are the same as without it.
"""

import importlib
import os
from dataclasses import dataclass
from typing import Any

from whetstone_api.jobs import TrainingConfig
from whetstone_api.training_plan import BaseQuantization
from whetstone_api.vocabulary import Reason

from whetstone_trainer.errors import UserError
from whetstone_trainer.recipe import Settings

LINEAR_LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""What "all linear layers" means to Unsloth, whose kernels know these names."""
_ENVIRONMENT = {
    "UNSLOTH_DISABLE_STATISTICS": "1",
    "UNSLOTH_COMPILE_LOCATION": "/tmp/unsloth",  # noqa: S108 - an emptyDir of the pod's own
}


@dataclass(frozen=True, kw_only=True)
class UnslothCalls:
    """What Unsloth is called with.

    Args:
        model: Arguments of `FastLanguageModel.from_pretrained`.
        adapter: Arguments of `FastLanguageModel.get_peft_model`.
    """

    model: dict[str, Any]
    adapter: dict[str, Any]


def unsloth_calls(config: TrainingConfig, settings: Settings, *, checkpointing: bool) -> UnslothCalls:
    """Return how Unsloth is told what a job asks for.

    Args:
        config: The job's configuration.
        settings: Hyperparameters as they take effect.
        checkpointing: Whether activations are computed again, by Unsloth's own way.
    """
    lora, bits = config.lora, config.quantization
    return UnslothCalls(
        model={
            "model_name": config.base_model_path,
            "max_seq_length": settings.max_length,
            "load_in_4bit": bits is BaseQuantization.NF4,
            "load_in_8bit": bits is BaseQuantization.INT8,
            "load_in_16bit": bits is BaseQuantization.NONE,
            "full_finetuning": False,
            "fix_tokenizer": False,
            "trust_remote_code": False,
            "use_exact_model_name": True,
            "local_files_only": True,
            "random_state": settings.seed,
        },
        adapter={
            "r": lora.rank,
            "lora_alpha": lora.alpha,
            "lora_dropout": float(settings.dropout),
            "target_modules": sorted(lora.target_modules) if lora.target_modules else list(LINEAR_LAYERS),
            "bias": "none",
            "use_rslora": lora.rs_lora,
            "use_gradient_checkpointing": "unsloth" if checkpointing else False,
            "random_state": settings.seed,
        },
    )


def import_unsloth() -> Any:
    """Import Unsloth, before anything that it changes.

    Raises:
        UserError: `BACKEND_UNAVAILABLE`: the image has no Unsloth, or that cannot use the device.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        return importlib.import_module("unsloth")
    except ModuleNotFoundError as error:
        raise UserError(
            Reason.BACKEND_UNAVAILABLE,
            f"spec.backend is Unsloth and the training image lacks it ({error}); leave out spec.image, or name one that"
            " is built with images/trainer-unsloth",
        ) from error
    except NotImplementedError as error:
        raise UserError(
            Reason.BACKEND_UNAVAILABLE,
            f"spec.backend is Unsloth, which cannot use this pod's device ({error}); ask for a GPU in"
            " spec.resources.limits, or use backend TRL",
        ) from error


def load_unsloth(config: TrainingConfig, settings: Settings, *, checkpointing: bool) -> Any:
    """Load the base model in bfloat16, or in fewer bits, with a new adapter on it.

    Args:
        config: As `unsloth_calls`.
        settings: As `unsloth_calls`.
        checkpointing: As `unsloth_calls`.

    Raises:
        UserError: As `import_unsloth`.
    """
    calls = unsloth_calls(config, settings, checkpointing=checkpointing)
    fast = import_unsloth().FastLanguageModel
    model, _ = fast.from_pretrained(**calls.model)
    return fast.get_peft_model(model, **calls.adapter)
