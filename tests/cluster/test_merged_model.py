"""A merged model on the real node: trained, merged, and served by the name of its job."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.loop import READY_SECONDS, Seeded, server_example
from support.training import training_spec
from support.waiting import eventually
from whetstone_dev.demo.watch import is_true

pytestmark = [pytest.mark.cluster, pytest.mark.long]
NAME = "merged"
TRAIN_SECONDS = 300.0


@pytest.fixture
def place(seeded: Seeded) -> Iterator[Seeded]:
    """A job and a server called `merged`, removed afterwards."""
    yield seeded
    for kind, label in (("ModelServer", "model-server"), ("LoRATrainingJob", "lora-training-job")):
        seeded.delete(kind, NAME)
        eventually(lambda label=label: not seeded.pods(label, NAME), what=f"pods of {kind} gone", seconds=150)


def server_spec() -> dict[str, Any]:
    """Return a server of whatever the job publishes."""
    spec = server_example()
    model = {"trainingJobRef": {"name": NAME}, "servedName": NAME}
    return {"model": model, "engine": spec["engine"], "resources": spec["resources"], "drain": {"seconds": 5}}


def test_merged_model_is_served_by_reference(place: Seeded) -> None:
    place.apply("ModelServer", NAME, server_spec())
    output = {"adapter": {"uri": "pvc://adapters/unmerged"}, "merged": {"uri": "pvc://models/merged"}}
    spec = training_spec(
        output="unmerged",
        dataset={"source": {"uri": "pvc://data/train.jsonl"}},
        hyperparameters={"maxSteps": 2, "batchSize": 2, "maxLength": 256, "learningRate": "1e-3"},
    )
    place.apply("LoRATrainingJob", NAME, {**spec, "output": output})
    merged = place.ended_well("LoRATrainingJob", NAME, seconds=TRAIN_SECONDS)["status"]["merged"]
    eventually(lambda: is_true(place.get("ModelServer", NAME), "Ready"), what="Ready", seconds=READY_SECONDS)
    assert place.get("ModelServer", NAME)["status"]["model"]["digest"] == merged["digest"]
    client = place.kube.openai(namespace=place.namespace, service=NAME)
    answer = client.chat.completions.create(
        model=NAME, messages=[{"role": "user", "content": "ls"}], max_tokens=4, temperature=0
    )
    assert answer.choices[0].message.content
