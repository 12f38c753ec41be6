"""The memory of a training: held to published figures, part by part, and what is chosen by it."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from whetstone_api.model_facts import ModelFacts
from whetstone_api.training_plan import BaseQuantization
from whetstone_artifacts.model_facts import facts_of_config
from whetstone_artifacts.training_choice import Choice, Freedom, choices, fastest, most_sparing, next_smaller
from whetstone_artifacts.training_memory import TrainingMemory, TrainingShape, estimate_training

CHECKOUT = Path(__file__).parents[3]
GIB = 1 << 30


def _bench() -> ModuleType:
    path = CHECKOUT / "bench" / "training_memory.py"
    spec = importlib.util.spec_from_file_location("training_memory_bench", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


BENCH = _bench()


def _facts(name: str) -> ModelFacts:
    facts = facts_of_config(BENCH.MODELS[name])
    assert facts is not None
    return facts


LLAMA_3B = _facts("Llama-3.2-3B")


def estimated(**values: Any) -> TrainingMemory:
    return estimate_training(LLAMA_3B, TrainingShape(**{"micro_batch": 1, "length": 1024, "rank": 16, **values}))


@pytest.mark.parametrize("row", BENCH.ROWS, ids=lambda row: f"{row.model} {row.what}")
def test_published_peaks_are_met_within_a_sixth(row: Any) -> None:
    assert row.predicted() == pytest.approx(row.reported, rel=1 / 6)


def test_page_shows_the_estimates_as_they_are() -> None:
    page = (CHECKOUT / "docs" / "training-memory.md").read_text()
    for row in BENCH.ROWS:
        assert f"| {' | '.join(BENCH.cells(row))} |" in page


def test_page_shows_what_the_recipes_take() -> None:
    page = (CHECKOUT / "docs" / "training-memory.md").read_text()
    assert {path.name for path in BENCH.EXAMPLES.glob("*.yaml")} == set(BENCH.RECIPES)
    for row in BENCH.recipe_rows():
        assert f"| {' | '.join(row)} |" in page


def test_numbers_of_a_configuration_are_those_of_the_model() -> None:
    assert LLAMA_3B.parameters == 3_212_749_824
    assert _facts("Llama-2-7B").parameters == 6_738_415_616
    assert _facts("Llama-3.1-8B").parameters == 8_030_261_248
    assert facts_of_config({"hidden_size": 8}) is None
    assert facts_of_config({**BENCH.MODELS["Llama-2-7B"], "num_local_experts": 8}) is None


def test_weights_follow_quantization_but_for_embeddings() -> None:
    rest = 2 * (LLAMA_3B.parameters - LLAMA_3B.linear_parameters)
    plain, nf4 = estimated().weights, estimated(quantization=BaseQuantization.NF4).weights
    assert plain == 2 * LLAMA_3B.parameters
    assert (nf4 - rest) / LLAMA_3B.linear_parameters == pytest.approx(0.516, abs=0.001)
    assert estimated(quantization=BaseQuantization.INT8).weights == pytest.approx(plain / 2 + rest / 2, rel=0.01)


def test_adapter_of_a_quantized_base_takes_half() -> None:
    assert estimated(rank=16).adapter == 28 * 16 * (24_576 + 2 * 4096 + 3 * 11_264 - 12_288) * 16
    assert estimated(quantization=BaseQuantization.NF4).adapter * 2 == estimated().adapter


@pytest.mark.parametrize(
    "changed",
    [
        {"length": 2048},
        {"micro_batch": 2},
        {"dropout": True},
        {"fused_attention": False},
        {"rank": 64},
        {"width": 4, "dropout": True},
        {"input_casts": True},
    ],
)
def test_activations_grow_with_what_is_kept(changed: dict[str, Any]) -> None:
    assert estimated(**changed).activations > estimated().activations


def test_rows_padded_to_one_length_keep_keys_for_every_head() -> None:
    one, two = estimated().activations, estimated(micro_batch=2).activations
    assert two - 2 * one == 28 * 2 * 1024 * 2 * 2 * (24 - 8) * 128
    eager = [estimated(micro_batch=rows, fused_attention=False).activations for rows in (1, 2)]
    assert eager[1] == 2 * eager[0]


def test_checkpointing_keeps_a_layers_input_and_computes_one_layer_again() -> None:
    plain, again = estimated(length=8192), estimated(length=8192, checkpointing=True)
    assert again.activations == 28 * 8192 * 3072 * 2
    assert again.layer - plain.layer == plain.activations // 28


def test_fewer_targets_keep_fewer_inputs() -> None:
    attention = estimated(targets=["q_proj", "v_proj"])
    assert attention.activations < estimated().activations
    assert estimated(targets=["something_else"]) == estimated()


def test_logits_count_without_the_fused_head() -> None:
    assert estimated(fused_loss=False).loss == 1024 * 128_256 * 12
    assert estimated().loss < GIB


def test_cpus_keep_more_of_dropout_and_less_of_eager_attention() -> None:
    cpu = {"on_cpu": True, "width": 4}
    inputs = LLAMA_3B.layers * 1024 * (6 * LLAMA_3B.hidden + LLAMA_3B.inner)
    without, with_dropout = (estimated(**cpu, dropout=dropout).activations for dropout in (False, True))
    own_inputs = 4 * LLAMA_3B.layers * 1024 * 4 * LLAMA_3B.hidden
    assert with_dropout - without == 4 * inputs + own_inputs
    matrices = LLAMA_3B.layers * LLAMA_3B.heads * 1024 * 1024
    for where, width in ((cpu, 4), ({}, 4 + 2)):
        eager, fused = (estimated(**where, fused_attention=fused).activations for fused in (False, True))
        assert eager - fused == width * matrices


def test_cpus_hold_all_logits_once_beside_tiles_of_them() -> None:
    found = estimated(on_cpu=True, width=4).loss
    assert found == 8.25 * 1024 * 32768 * 4 + 1024 * LLAMA_3B.vocabulary * 4 + 2 * 1024 * LLAMA_3B.hidden * 4


def test_shards_share_the_weights() -> None:
    shared = estimated(shards=8)
    assert shared.weights < estimated().weights / 4
    assert shared.adapter == estimated().adapter
    assert shared.activations == estimated().activations


def shape(**values: Any) -> TrainingShape:
    return TrainingShape(**{"micro_batch": 1, "length": 210, "rank": 32, **values})


def test_short_rows_go_at_once_and_without_checkpointing() -> None:
    best = fastest(choices(LLAMA_3B, shape(), Freedom(batch_size=32, typical_length=210)), free=80 * GIB)
    assert best is not None
    assert (best.micro_batch, best.checkpointing) == (32, False)


def test_what_does_not_fit_gets_smaller_before_it_is_computed_again() -> None:
    found = choices(LLAMA_3B, shape(length=8192), Freedom(batch_size=8, typical_length=8192))
    best = fastest(found, free=80 * GIB)
    assert best is not None
    assert (best.micro_batch, best.checkpointing) == (2, False)
    small = fastest(found, free=24 * GIB)
    assert small is not None
    assert small.checkpointing
    assert fastest(found, free=8 * GIB) is None
    assert most_sparing(found).micro_batch == 1


def test_what_is_fixed_stays() -> None:
    freedom = Freedom(batch_size=8, micro_batch=4, checkpointing=True, typical_length=8)
    assert [(one.micro_batch, one.checkpointing) for one in choices(LLAMA_3B, shape(), freedom)] == [(4, True)]


def test_after_too_much_comes_half_of_it_then_checkpointing_then_nothing() -> None:
    freedom, seen = Freedom(batch_size=12), []
    choice: Choice | None = Choice(micro_batch=12, checkpointing=False, memory=None)
    while choice is not None:
        seen.append((choice.micro_batch, choice.checkpointing))
        choice = next_smaller(choice, freedom)
    assert seen == [(12, False), (6, False), (3, False), (1, False), (1, True)]
    assert next_smaller(Choice(micro_batch=4, checkpointing=True, memory=None), replace(freedom, micro_batch=4)) is None
