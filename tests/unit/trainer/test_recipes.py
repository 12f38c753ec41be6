"""The manifests in examples/recipes, prepared on a sample with the template of their base model's family."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import yaml
from support.preferences import pair_row, said
from support.template_families import CALL, GRANITE, MISTRAL, SPECIALS, TALK, TOOLS, family_tokenizer, shipped
from support.trainer_job import ROOT, Job
from whetstone_artifacts.model_facts import facts_of_config
from whetstone_artifacts.training_choice import memory_bytes
from whetstone_trainer import memory_estimate
from whetstone_trainer.memory_estimate import expect
from whetstone_trainer.prepare import prepare_data
from whetstone_trainer.recipe import read_recipe

pytestmark = pytest.mark.torch
SHAPE = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}
"""A model that fits all of their GPUs; what each takes with its own is in docs/training-memory.md."""


def conversation(number: int) -> dict[str, Any]:
    """A trace in ShareGPT's form."""
    return {"conversations": [{"from": "human", "value": f"q{number}"}, {"from": "gpt", "value": "a"}]}


def with_calls(number: int) -> dict[str, Any]:
    """A trajectory that calls a tool."""
    return {"messages": [said("user", f"q{number}"), *TALK[1:]], "tools": TOOLS}


def step(number: int) -> dict[str, Any]:
    """A call that is better than giving up."""
    row: dict[str, Any] = pair_row(f"q{number}", CALL, "I cannot.", tools=TOOLS)
    return row


SAMPLES: Mapping[str, tuple[str, Callable[[int], dict[str, Any]]]] = {
    "openthoughts-devstral": ("mistral", conversation),
    "tool-use-70b": ("llama", with_calls),
    "tool-use-sft": ("granite", with_calls),
    "tool-use-dpo": ("granite", step),
}
"""Of each recipe the family of its base model, and rows of the kind that it names."""
MANIFESTS = [
    manifest
    for path in sorted((ROOT / "examples" / "recipes").glob("*.yaml"))
    for manifest in yaml.safe_load_all(path.read_text())
]
FROM_SPEC = ("method", "loss", "preparation", "preference", "lora", "hyperparameters", "quantization", "plan")
"""Fields of the spec that the operator hands to the trainer as they are."""


def recipe_job(job: Job, manifest: dict[str, Any]) -> Job:
    """Return the job of a recipe on a sample of twelve rows."""
    family, row = SAMPLES[manifest["metadata"]["name"]]
    template = {"mistral": MISTRAL, "granite": GRANITE}.get(family) or shipped("llama3_1")
    base = job.folder / "base"
    family_tokenizer(template, SPECIALS[family], begin="<s>", end="</s>").save_pretrained(base)
    (base / "config.json").write_text(json.dumps(SHAPE))
    (base / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    job.write([row(number) for number in range(12)])
    spec = manifest["spec"]
    for name in FROM_SPEC:
        job.values.pop(name, None)
    job.values |= {name: spec[name] for name in FROM_SPEC if name in spec}
    job.values |= {"baseModelPath": str(base), "onAccelerator": True}
    return job


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda manifest: manifest["metadata"]["name"])
def test_recipe_prepares_a_sample_and_says_what_it_takes(
    job: Job, manifest: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_estimate, "read_model_facts", lambda _: facts_of_config(SHAPE))
    job = recipe_job(job, manifest)
    recipe = read_recipe(job.config)
    dataset = prepare_data(job.config, recipe).dataset
    assert dataset.rows == 12
    assert 0 < dataset.loss_tokens < dataset.tokens
    found = expect(job.config, recipe.settings, dataset)
    assert found is not None
    assert memory_bytes(found.estimate.memory) < memory_bytes(manifest["spec"]["plan"]["deviceMemory"])
