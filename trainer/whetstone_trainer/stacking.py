"""A new adapter on top of another one: that one is folded into the base, and both are published as one adapter.

With the first update `s1 B1 A1` in the weights, the second, `s2 B2 A2`, is trained alone. Their sum is one update of
rank r1 + r2: `[s1 B1, s2 B2]` times `A1` above `A2`. So what a server loads on the recorded base computes what was
trained, and nothing is approximated but for the rounding of the folded weights.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from safetensors.torch import load_file, save_file
from whetstone_api.adapter_artifact import CONFIG_FILE, WEIGHTS_FILE

PREFIX = "base_model.model."
"""What PEFT puts before the names of a model's modules."""


@dataclass(frozen=True, kw_only=True)
class Update:
    """The change of one matrix: `outputs @ inputs`.

    Args:
        inputs: LoRA's A, rank x width of the input.
        outputs: LoRA's B with the scaling in it, width of the output x rank.
    """

    inputs: torch.Tensor
    outputs: torch.Tensor

    @property
    def rank(self) -> int:
        """Rank of the change."""
        return int(self.inputs.shape[0])

    def padded(self, rank: int) -> "Update":
        """Return the same change with a higher rank."""
        more = rank - self.rank
        return Update(
            inputs=torch.nn.functional.pad(self.inputs, (0, 0, 0, more)),
            outputs=torch.nn.functional.pad(self.outputs, (0, more)),
        )


Updates = Mapping[str, Update]
"""Changes by the name of the module in the base model."""


def folded(model: Any, adapter: Path) -> tuple[Any, Updates]:
    """Return the model with an adapter in its weights, and that adapter's changes.

    Args:
        model: The base model, not quantized.
        adapter: Folder of the adapter.
    """
    with_adapter = PeftModel.from_pretrained(model, str(adapter))
    changes = {
        name: Update(
            inputs=module.lora_A["default"].weight.detach().float().cpu(),
            outputs=module.lora_B["default"].weight.detach().float().cpu() * module.scaling["default"],
        )
        for name, module in with_adapter.get_base_model().named_modules()
        if isinstance(module, LoraLayer)
    }
    return with_adapter.merge_and_unload(safe_merge=True), changes


def stack(folder: Path, first: Updates, *, model: Any) -> None:
    """Make a saved adapter one that does what another one and it do together.

    Args:
        folder: Folder with the saved adapter, as `save_adapter` leaves it.
        first: Changes of the other one.
        model: The trained PEFT model.
    """
    config = json.loads((folder / CONFIG_FILE).read_bytes())
    second = _saved(load_file(folder / WEIGHTS_FILE), config)
    ranks = [max(update.rank for update in updates.values()) for updates in (first, second)]
    tensors: dict[str, torch.Tensor] = {}
    for name in sorted({*first, *second}):
        inputs, outputs = [], []
        for updates, rank in zip((first, second), ranks, strict=True):
            update = updates.get(name) or _nothing(first.get(name) or second[name])
            inputs.append(update.padded(rank).inputs)
            outputs.append(update.padded(rank).outputs)
        tensors[f"{PREFIX}{name}.lora_A.weight"] = torch.cat(inputs).contiguous()
        tensors[f"{PREFIX}{name}.lora_B.weight"] = torch.cat(outputs, dim=1).contiguous()
    save_file(tensors, folder / WEIGHTS_FILE, metadata={"format": "pt"})
    (folder / WEIGHTS_FILE).chmod(0o644)
    config |= {
        "r": sum(ranks),
        # Scaled by one: the scalings are in the tensors.
        "lora_alpha": sum(ranks),
        "use_rslora": False,
        "rank_pattern": {},
        "alpha_pattern": {},
        "target_modules": _targets({*first, *second}, model),
    }
    (folder / CONFIG_FILE).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def _saved(tensors: Mapping[str, torch.Tensor], config: Mapping[str, Any]) -> Updates:
    rank = int(config["r"])
    scaling = config["lora_alpha"] / (math.sqrt(rank) if config.get("use_rslora") else rank)
    names = [key.removeprefix(PREFIX).removesuffix(".lora_A.weight") for key in tensors if ".lora_A." in key]
    return {
        name: Update(
            inputs=tensors[f"{PREFIX}{name}.lora_A.weight"].float(),
            outputs=tensors[f"{PREFIX}{name}.lora_B.weight"].float() * scaling,
        )
        for name in names
    }


def _nothing(like: Update) -> Update:
    """Return no change of the same matrix, of rank 0."""
    return Update(inputs=like.inputs[:0], outputs=like.outputs[:, :0])


def _targets(names: set[str], model: Any) -> list[str]:
    """Return what names these modules of a PEFT model and no others: the ends of their names, or the whole names."""
    ends = {name.rsplit(".", 1)[-1] for name in names}
    meant = {name for name, _ in model.get_base_model().named_modules() if name.rsplit(".", 1)[-1] in ends}
    return sorted(ends if meant == names else names)
