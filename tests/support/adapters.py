"""Small real adapter folders and model folders for tests."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from whetstone_api.adapter_artifact import (
    CONFIG_FILE,
    LINEAGE_FILE,
    PROBE_FILE,
    WEIGHTS_FILE,
    BaseIdentity,
    Lineage,
    Probe,
)
from whetstone_artifacts.folders import write_manifest

HIDDEN = 8
MODEL_CONFIG = {
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": 16,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "num_hidden_layers": 2,
    "vocab_size": 64,
    "max_position_embeddings": 1024,
}
MODULE = "base_model.model.model.layers.{layer}.self_attn.q_proj"


def lora_tensors(*, rank: int = 4, layer: int = 0, fill: float = 0.5) -> dict[str, Any]:
    """Return one LoRA pair for `q_proj` of one layer."""
    module = MODULE.format(layer=layer)
    return {
        f"{module}.lora_A.weight": np.full((rank, HIDDEN), fill, dtype=np.float32),
        f"{module}.lora_B.weight": np.full((HIDDEN, rank), fill, dtype=np.float32),
    }


def random_tensors(*, rank: int, layers: int, hidden: int, seed: int) -> dict[str, Any]:
    """Return LoRA pairs for `q_proj` of every layer of a model, with an effect that is easily seen."""
    rng, tensors = np.random.default_rng(seed), {}
    for layer in range(layers):
        module = MODULE.format(layer=layer)
        tensors[f"{module}.lora_A.weight"] = rng.normal(0, 0.1, (rank, hidden)).astype(np.float32)
        tensors[f"{module}.lora_B.weight"] = rng.normal(0, 0.1, (hidden, rank)).astype(np.float32)
    return tensors


def lineage(*, fingerprint: str = "sha256:base", recipe: Mapping[str, object] | None = None) -> Lineage:
    """Return a lineage as a training Job writes it."""
    return Lineage(
        recipe_digest="sha256:recipe",
        recipe=dict(recipe or {"seed": 1}),
        base=BaseIdentity(source="pvc://models/base", fingerprint=fingerprint),
        datasets=[],
        object_uid="u",
        object_name="job",
        namespace="team",
        published_at="2026-01-01T00:00:00Z",
    )


def make_adapter(
    folder: Path,
    *,
    config: Mapping[str, Any] | None = None,
    tensors: Mapping[str, Any] | None = None,
    probe: Probe | None = None,
    history: Lineage | None = None,
) -> str:
    """Write a whole adapter folder and return its content digest."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "bias": "none", "target_modules": ["q_proj"]}
    (folder / CONFIG_FILE).write_text(json.dumps({**settings, **(config or {})}))
    save_file(dict(lora_tensors() if tensors is None else tensors), folder / WEIGHTS_FILE)
    if probe is not None:
        (folder / PROBE_FILE).write_text(probe.to_json())
    if history is not None:
        (folder / LINEAGE_FILE).write_text(history.to_json())
    return write_manifest(folder).digest


def make_model(folder: Path, *, seed: int = 0) -> None:
    """Write a model folder of a few kilobytes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(MODEL_CONFIG))
    (folder / "tokenizer.json").write_text("{}")
    weights = np.random.default_rng(seed).standard_normal((64, HIDDEN)).astype(np.float32)
    save_file({"model.embed_tokens.weight": weights}, folder / "model.safetensors")
