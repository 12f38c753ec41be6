"""The memory of an engine: what is read of a model, and what follows from it."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.adapters import make_model
from support.model_facts import LLAMA_3B
from whetstone_api.engine import EngineSpec
from whetstone_api.model_facts import ModelFacts
from whetstone_artifacts.model_facts import facts_of, read_model_facts
from whetstone_artifacts.serving_memory import Estimate, estimate

GIB = 1 << 30


def estimated(*, loras: int = 0, rank: int = 0, facts: ModelFacts = LLAMA_3B, **engine: Any) -> Estimate:
    return estimate(facts, EngineSpec.model_validate(engine), loras=loras, rank=rank)


@pytest.mark.parametrize(
    ("setting", "loaded"),
    [
        ({}, 5.99),
        ({"loras": 4, "rank": 16}, 6.20),
        ({"loras": 4, "rank": 64}, 6.85),
        ({"quantization": "Fp8"}, 3.40),
        ({"quantization": "Fp8", "loras": 4, "rank": 64}, 4.27),
    ],
)
def test_loaded_memory_is_what_vllm_reported_within_two_percent(setting: dict[str, Any], loaded: float) -> None:
    found = estimated(**setting)
    assert (found.weights + found.adapters) / GIB == pytest.approx(loaded, rel=0.02)


def test_cache_holds_keys_and_values_of_every_layer() -> None:
    found = estimated(maxModelLength=4096)
    assert found.cache_per_token == 2 * 28 * 8 * 128 * 2
    assert found.cache_per_request == 4096 * found.cache_per_token
    assert estimated(maxModelLength=4097).cache_per_request == 4112 * found.cache_per_token
    assert estimated().length == 131072
    assert estimated(extraArgs=["--kv-cache-dtype", "fp8"]).cache_per_token == found.cache_per_token // 2
    assert estimated(dtype="Float32").cache_per_token == 2 * found.cache_per_token


def test_gpus_share_weights_and_cache() -> None:
    one, four = estimated(loras=4, rank=16), estimated(loras=4, rank=16, parallelism={"tensor": 2, "pipeline": 2})
    assert four.weights == one.weights // 4
    assert four.cache_per_token == one.cache_per_token // 4
    assert one.adapters // 4 < four.adapters < one.adapters


def test_key_heads_are_never_split() -> None:
    assert estimated(parallelism={"tensor": 16}).cache_per_token == estimated(parallelism={"tensor": 8}).cache_per_token


def test_quantized_checkpoint_is_as_large_as_it_lies_there() -> None:
    packed = LLAMA_3B.model_copy(update={"quantization": "awq", "weight_bytes": 2_000_000_000})
    assert estimated(facts=packed, quantization="Awq").weights == 2_000_000_000


def test_work_follows_the_largest_batch_and_graphs() -> None:
    usual = estimated().work
    assert estimated(extraArgs=["--max-num-batched-tokens=2048"]).work < usual
    assert estimated(extraArgs=["--enforce-eager"]).work / GIB == pytest.approx(0.77, rel=0.1)


def test_requests_that_fit_share_what_is_left() -> None:
    found = estimated(maxModelLength=4096)
    assert found.requests(found.least) == 1
    assert found.requests(found.least - 1) == 0
    assert found.requests(found.least + 3 * found.cache_per_request) == 4


def test_facts_are_read_from_config_and_headers(tmp_path: Path) -> None:
    make_model(tmp_path)
    facts = read_model_facts(tmp_path)
    assert facts is not None
    assert (facts.parameters, facts.weight_bytes, facts.linear_parameters) == (64 * 8, 64 * 8 * 4, 0)
    assert (facts.heads, facts.kv_heads, facts.head_width, facts.dtype) == (2, 1, 4, "float32")


@pytest.mark.parametrize("missing", ["vocab_size", "hidden_size", "num_hidden_layers", "max_position_embeddings"])
def test_model_that_says_too_little_has_no_facts(tmp_path: Path, missing: str) -> None:
    make_model(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config[missing]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert read_model_facts(tmp_path) is None


@pytest.mark.parametrize("field", ["kv_lora_rank", "num_experts"])
def test_model_of_another_shape_has_no_facts(field: str) -> None:
    assert facts_of({"hidden_size": 1, field: 8}, []) is None


def test_only_layers_with_full_attention_count(tmp_path: Path) -> None:
    make_model(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(
        json.dumps({**config, "layer_types": ["full_attention", "sliding_attention"]})
    )
    facts = read_model_facts(tmp_path)
    assert facts is not None
    assert (facts.layers, facts.cached_layers) == (2, 1)


def test_folder_without_a_model_has_no_facts(tmp_path: Path) -> None:
    assert read_model_facts(tmp_path) is None
