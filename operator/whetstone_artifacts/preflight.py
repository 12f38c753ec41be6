"""Adapter preflight: what vLLM would refuse, crash on, or silently ignore is said before an engine sees a file.

The rules are those of vLLM 0.32 and 0.33 (`vllm/lora/peft_helper.py`, `lora_model.py`), read from their source.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from whetstone_api.adapter_artifact import CONFIG_FILE, LINEAGE_FILE, WEIGHTS_FILE, Lineage
from whetstone_api.vocabulary import Reason

from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.tensors import WIDTHS, TensorInfo, not_finite, read_header

UNSUPPORTED = {
    "use_dora": "DoRA; train with use_dora=false",
    "lora_bias": "a bias in the adapter; train with lora_bias=false",
    "layer_replication": "replicated layers; train without layer_replication",
    "alora_invocation_tokens": "aLoRA; train without alora_invocation_tokens",
    "trainable_token_indices": "trained token embeddings; train without trainable_token_indices",
    "use_qalora": "QALoRA; train with use_qalora=false",
    "use_bdlora": "BD-LoRA; train without use_bdlora",
}
"""Fields of `adapter_config.json` that the engine cannot serve when they are set, with the fix."""
BASE_CHANGING_INITS = ("pissa", "olora", "corda", "loftq")
"""Initialisations that change the base's weights: on the unchanged base the adapter is wrong."""
SAVED_HEADS = {"classifier", "score"}
PAIR = re.compile(r"^(?P<module>.+)\.lora_(?P<side>[AB])\.weight$")
LAYER = re.compile(r"\.layers\.(\d+)\.")


def check_adapter(
    folder: Path, *, base_fingerprint: str | None, max_rank: int, model_config: Mapping[str, Any]
) -> None:
    """Check that an engine of this base model can serve an adapter.

    Args:
        folder: The adapter's folder.
        base_fingerprint: Fingerprint of the served base model; None leaves lineage unchecked.
        max_rank: The engine's `--max-lora-rank`.
        model_config: The base model's `config.json`; sizes that it does not name are not checked.

    Raises:
        ArtifactError: `ADAPTER_NOT_FOUND`, `ADAPTER_INVALID`, `RANK_TOO_HIGH` or `BASE_MISMATCH`; the message names the
            file, the field or tensor, and the fix.
    """
    if not folder.is_dir():
        raise ArtifactError(
            Reason.ADAPTER_NOT_FOUND, f"{folder} does not exist; publish the adapter or correct the uri"
        )
    config = _read_config(folder)
    _check_base(folder, base_fingerprint)
    _check_rank(folder, config, max_rank)
    _check_method(folder, config)
    for extra in ("new_embeddings.safetensors", "new_embeddings.bin"):
        if (folder / extra).exists():
            raise _invalid(folder / extra, "added embeddings cannot be served; train without resizing the vocabulary")
    path = folder / WEIGHTS_FILE
    if not path.is_file():
        raise _invalid(path, "is missing; save the adapter with safe_serialization=True (pickles are never loaded)")
    tensors = read_header(path)
    _check_tensors(path, tensors, max_rank)
    _check_shapes(path, tensors, model_config)
    broken = not_finite(path, tensors)
    if broken is not None:
        raise _invalid(path, f"tensor {broken} holds NaN or infinity; the training diverged, train again with less")


def _invalid(path: Path, message: str) -> ArtifactError:
    return ArtifactError(Reason.ADAPTER_INVALID, f"{path}: {message}")


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG_FILE
    if not path.is_file():
        raise _invalid(path, "is missing; publish the folder that PEFT's save_pretrained wrote")
    try:
        config = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise _invalid(path, f"is not JSON ({error}); save the adapter again") from error
    if not isinstance(config, dict):
        raise _invalid(path, "is not a JSON object; save the adapter again")
    if config.get("peft_type") != "LORA":
        raise _invalid(path, f"peft_type is {config.get('peft_type')!r}; only LORA can be served")
    return config


def _check_base(folder: Path, base_fingerprint: str | None) -> None:
    path = folder / LINEAGE_FILE
    if base_fingerprint is None or not path.is_file():
        return
    try:
        base = Lineage.model_validate_json(path.read_bytes()).base
    except ValidationError as error:
        raise _invalid(path, f"cannot be read ({error.error_count()} errors); publish again") from error
    if base.fingerprint != base_fingerprint:
        raise ArtifactError(
            Reason.BASE_MISMATCH,
            f"{path}: base.fingerprint is {base.fingerprint} ({base.source}), the server's model has"
            f" {base_fingerprint}; serve the base that the adapter was trained on, or train on this one",
        )


def _check_rank(folder: Path, config: Mapping[str, Any], max_rank: int) -> None:
    path = folder / CONFIG_FILE
    pattern = config.get("rank_pattern") or {}
    ranks = {"r": config.get("r"), **{f"rank_pattern[{k}]": v for k, v in dict(pattern).items()}}
    for field, rank in ranks.items():
        if not isinstance(rank, int) or rank < 1:
            raise _invalid(path, f"{field} is {rank!r}, not a positive number; save the adapter again")
        if rank > max_rank:
            raise ArtifactError(
                Reason.RANK_TOO_HIGH,
                f"{path}: {field} is {rank}, the server loads up to {max_rank}; raise"
                " spec.adapterCapacity.maxRank of the ModelServer (Auto does so by itself) or train with a lower"
                " rank",
            )


def _check_method(folder: Path, config: Mapping[str, Any]) -> None:
    path = folder / CONFIG_FILE
    for field, text in UNSUPPORTED.items():
        if config.get(field):
            raise _invalid(path, f"{field} is set: vLLM does not serve {text}")
    if config.get("bias", "none") != "none":
        raise _invalid(path, f"bias is {config['bias']!r}: vLLM does not serve trained biases; train with bias='none'")
    saved = set(config.get("modules_to_save") or ()) - SAVED_HEADS
    if saved:
        raise _invalid(
            path, f"modules_to_save names {sorted(saved)}: whole modules cannot be hot-loaded; leave it empty"
        )
    init = config.get("init_lora_weights")
    if isinstance(init, str) and init.lower().startswith(BASE_CHANGING_INITS):
        raise _invalid(
            path,
            f"init_lora_weights is {init!r}, which changes the base; convert to plain LoRA when saving (PEFT guide)",
        )


def _check_tensors(path: Path, tensors: Mapping[str, TensorInfo], max_rank: int) -> None:
    if not tensors:
        raise _invalid(path, "holds no tensors; save the adapter again (a distributed save may have lost them)")
    sides: dict[str, set[str]] = {}
    for name, info in tensors.items():
        if ".base_layer." in name or ".modules_to_save." in name or ".lora_embedding_" in name:
            raise _invalid(path, f"{name} is an embedding or a whole module: vLLM skips or refuses it; train without")
        match = PAIR.match(name)
        if match is None:
            if any(head in name for head in SAVED_HEADS):
                continue
            raise _invalid(path, f"{name} is not a LoRA tensor (….lora_A.weight or ….lora_B.weight); save with PEFT")
        if info.dtype not in WIDTHS:
            raise _invalid(path, f"{name} has type {info.dtype}; save as F32, BF16 or F16")
        if len(info.shape) != 2 or 0 in info.shape:
            raise _invalid(path, f"{name} has shape {list(info.shape)}; it must be a non-empty matrix, save again")
        side = match["side"]
        rank = info.shape[0] if side == "A" else info.shape[1]
        if rank > max_rank:
            raise ArtifactError(
                Reason.RANK_TOO_HIGH, f"{path}: {name} has rank {rank}, the server loads up to {max_rank}"
            )
        sides.setdefault(match["module"], set()).add(side)
    for module, found in sides.items():
        if found != {"A", "B"}:
            raise _invalid(path, f"{module} has only lora_{found.pop()}; both halves are needed, save again")


def _expected_widths(config: Mapping[str, Any]) -> dict[str, tuple[int | None, int | None]]:
    """Return (inputs, outputs) of the linear layers that most decoder models share."""
    hidden, inner = config.get("hidden_size"), config.get("intermediate_size")
    heads, groups = config.get("num_attention_heads"), config.get("num_key_value_heads")
    size = config.get("head_dim") or (hidden // heads if hidden and heads else None)
    queries = heads * size if heads and size else None
    keys = (groups or heads) * size if heads and size else None
    return {
        "q_proj": (hidden, queries),
        "k_proj": (hidden, keys),
        "v_proj": (hidden, keys),
        "o_proj": (queries, hidden),
        "gate_proj": (hidden, inner),
        "up_proj": (hidden, inner),
        "down_proj": (inner, hidden),
    }


def _check_shapes(path: Path, tensors: Mapping[str, TensorInfo], model_config: Mapping[str, Any]) -> None:
    if model_config.get("model_type") not in ("llama", "qwen2", "qwen3", "mistral"):
        return
    widths = _expected_widths(model_config)
    layers = model_config.get("num_hidden_layers")
    for name, info in tensors.items():
        match = PAIR.match(name)
        if match is None:
            continue
        layer = LAYER.search(name)
        if layer and layers and int(layer[1]) >= layers:
            raise _other_base(path, f"{name} is for layer {layer[1]}, the server's model has {layers}")
        inputs, outputs = widths.get(match["module"].rsplit(".", 1)[-1], (None, None))
        found, expected = (info.shape[1], inputs) if match["side"] == "A" else (info.shape[0], outputs)
        if expected is not None and found != expected:
            raise _other_base(path, f"{name} has width {found}, the server's model {expected}")


def _other_base(path: Path, message: str) -> ArtifactError:
    return ArtifactError(
        Reason.BASE_MISMATCH, f"{path}: {message}; serve the base that the adapter was trained on, or train on this one"
    )
