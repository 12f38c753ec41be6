"""Two pods train one adapter on the real node; what kills one of them changes nothing in the result."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.loop import Seeded
from support.node import kill
from support.training import training_spec
from support.waiting import eventually
from whetstone_dev.demo.watch import is_true

pytestmark = [pytest.mark.cluster, pytest.mark.long]
NAME = "pair"
LABEL = "lora-training-job"
INDEX = "batch.kubernetes.io/job-completion-index"
TRAIN_SECONDS = 400.0


@pytest.fixture
def place(seeded: Seeded) -> Iterator[Seeded]:
    """A place for training jobs called `pair`, removed afterwards."""
    yield seeded
    remove(seeded)


def remove(seeded: Seeded) -> None:
    """Delete the job and wait until its pods are gone."""
    seeded.delete("LoRATrainingJob", NAME)
    eventually(lambda: not seeded.pods(LABEL, NAME), what="pods of the training gone", seconds=150)


def start(seeded: Seeded, output: str, **fields: Any) -> None:
    """Start a training of a few steps in two pods, with a checkpoint after each."""
    spec = training_spec(
        output=output,
        dataset={"source": {"uri": "pvc://data/train.jsonl"}},
        hyperparameters={"maxSteps": 5, "batchSize": 2, "maxLength": 256, "learningRate": "1e-3"},
        checkpoint={"everySteps": 1},
        distributed={"nodes": 2},
        **fields,
    )
    seeded.apply("LoRATrainingJob", NAME, spec)


def finished(seeded: Seeded) -> dict[str, Any]:
    """Wait until the training has ended well, and return its status."""
    status: dict[str, Any] = seeded.ended_well("LoRATrainingJob", NAME, seconds=TRAIN_SECONDS)["status"]
    return status


def pods_of_index(seeded: Seeded, index: int) -> list[dict[str, Any]]:
    """Return the training pods of an index, in the order of their creation."""
    return [pod for pod in seeded.pods(LABEL, NAME) if pod["metadata"]["labels"].get(INDEX) == str(index)]


def test_death_of_one_pod_starts_both_anew_and_the_adapter_is_the_same(place: Seeded) -> None:
    start(place, "pair-calm")
    calm = finished(place)
    assert calm["attempts"] == 2
    remove(place)
    start(place, "pair-struck")
    checkpoints = place.host_folder("workspace")
    uid = place.get("LoRATrainingJob", NAME)["metadata"]["uid"].replace("-", "")[:8]
    eventually(
        lambda: list((checkpoints / f"{NAME}-{uid}" / "checkpoints").glob("checkpoint-*/manifest.json")),
        what="a checkpoint",
        seconds=TRAIN_SECONDS,
    )
    [second] = pods_of_index(place, 1)
    kill(second, "main")
    struck = finished(place)
    assert struck["adapter"]["digest"] == calm["adapter"]["digest"]
    assert [len(pods_of_index(place, index)) for index in (0, 1)] == [2, 2]
    again = pods_of_index(place, 0)[1]
    log = place.kube.logs(namespace=place.namespace, pod=again["metadata"]["name"], container="main", lines=1000)
    assert "going on from" in log


def test_eviction_of_one_pod_stops_both_after_the_same_step(place: Seeded) -> None:
    start(place, "pair-evicted")
    eventually(
        lambda: (place.get("LoRATrainingJob", NAME).get("status", {}).get("progress") or {}).get("step"),
        what="a step",
        seconds=TRAIN_SECONDS,
    )
    [second] = pods_of_index(place, 1)
    place.kube.delete("v1", "Pod", name=second["metadata"]["name"], namespace=place.namespace)
    finished(place)
    first = pods_of_index(place, 0)[0]
    terminated = first["status"]["containerStatuses"][0]["state"]["terminated"]
    assert "stopped by SIGTERM after step" in terminated["message"]
    assert is_true(place.get("LoRATrainingJob", NAME), "Complete")
