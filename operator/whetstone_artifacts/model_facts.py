"""Reads what decides how much memory a base model takes when it is served."""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from whetstone_api.model_facts import ModelFacts

from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.tensors import TensorInfo, read_header

CONFIG = "config.json"
LAYER_MARK = ".layers."
OTHER_SHAPES = ("kv_lora_rank", "num_experts", "num_local_experts", "n_routed_experts", "ssm_cfg", "mamba_expand")
"""Fields of models whose cache or layers are of another shape (compressed keys, experts, states)."""
_FULL = ("full_attention", "attention")


def read_model_facts(folder: Path) -> ModelFacts | None:
    """Return the facts of a model's folder; None where it says too little, or is no decoder that we know.

    Args:
        folder: Folder with `config.json` and `*.safetensors`; only the headers of the weights are read.
    """
    try:
        config = json.loads((folder / CONFIG).read_bytes())
        shards = sorted(folder.glob("*.safetensors"))
        tensors = {name: info for shard in shards for name, info in read_header(shard).items()}
    except (OSError, ValueError, RecursionError, ArtifactError):
        return None
    return facts_of(config, tensors.items()) if tensors else None


def facts_of(config: Mapping[str, Any], tensors: Iterable[tuple[str, TensorInfo]]) -> ModelFacts | None:
    """Return the facts of a configuration and the headers of its weights; None where the configuration says too little.

    Args:
        config: Content of `config.json`.
        tensors: Name, type and shape of each weight.
    """
    text = config.get("text_config") or config
    if any(text.get(field) for field in OTHER_SHAPES):
        return None
    parameters = weight_bytes = linear = 0
    for name, info in tensors:
        size = math.prod(info.shape)
        parameters += size
        weight_bytes += info.end - info.start
        linear += size if LAYER_MARK in name and len(info.shape) >= 2 else 0
    try:
        heads = int(text["num_attention_heads"])
        hidden, layers = int(text["hidden_size"]), int(text["num_hidden_layers"])
        return ModelFacts(
            parameters=parameters,
            weight_bytes=weight_bytes,
            linear_parameters=linear,
            dtype=str(config.get("dtype") or config.get("torch_dtype") or text.get("dtype") or "float32"),
            quantization=(config.get("quantization_config") or {}).get("quant_method"),
            layers=layers,
            hidden=hidden,
            inner=int(text.get("intermediate_size") or 4 * hidden),
            heads=heads,
            kv_heads=int(text.get("num_key_value_heads") or heads),
            head_width=int(text.get("head_dim") or hidden // heads),
            vocabulary=int(text["vocab_size"]),
            max_length=int(text["max_position_embeddings"]),
            cached_layers=_cached(text.get("layer_types"), layers),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def facts_of_config(config: Mapping[str, Any]) -> ModelFacts | None:
    """Return the facts of a gated decoder (Llama, Mistral, Qwen, ...) from its configuration alone.

    Biases are left out. None where the configuration says too little.

    Args:
        config: Content of `config.json`.
    """
    text = config.get("text_config") or config
    try:
        hidden, inner, layers = int(text["hidden_size"]), int(text["intermediate_size"]), int(text["num_hidden_layers"])
        heads, vocabulary = int(text["num_attention_heads"]), int(text["vocab_size"])
        width = int(text.get("head_dim") or hidden // heads)
        keys = int(text.get("num_key_value_heads") or heads) * width
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None
    matrices = {"q": (heads * width, hidden), "k": (keys, hidden), "v": (keys, hidden), "o": (hidden, heads * width)}
    matrices |= {"gate": (inner, hidden), "up": (inner, hidden), "down": (hidden, inner)}
    layer: dict[str, tuple[int, ...]] = {**matrices, "norms": (2 * hidden,)}
    tied = config.get("tie_word_embeddings", text.get("tie_word_embeddings", False))
    ends = ("embed",) if tied else ("embed", "head")
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(ends, (vocabulary, hidden)) | {"norm": (hidden,)}
    shapes |= {f"model{LAYER_MARK}{at}.{name}": shape for at in range(layers) for name, shape in layer.items()}
    return facts_of(config, ((name, _stored(shape)) for name, shape in shapes.items()))


def _stored(shape: tuple[int, ...]) -> TensorInfo:
    return TensorInfo(dtype="BF16", shape=shape, start=0, end=2 * math.prod(shape))


def _cached(kinds: Any, layers: int) -> int:
    """Return how many layers keep the whole context; all where the configuration does not tell them apart."""
    if not isinstance(kinds, list):
        return layers
    return sum(kind in _FULL for kind in kinds)
