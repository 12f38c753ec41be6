"""Kills on the node: nothing is lost, nothing is done twice."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from support.failpoint_image import push_trainer_with_failpoint
from support.loop import Seeded, pod_is_ready
from support.node import kill, restart
from support.training import training_spec
from support.waiting import eventually
from whetstone_dev.demo.install import SYSTEM_NAMESPACE
from whetstone_dev.demo.kube import Kube
from whetstone_dev.demo.watch import is_true

pytestmark = pytest.mark.cluster
TRAIN_SECONDS = 300.0
DATASET = {"source": {"uri": "pvc://data/train.jsonl"}}
LABEL = "lora-training-job"
STEPS = 4
MANY_STEPS = 20
"""So many that the last is far when the node goes down."""


@pytest.fixture
def training(seeded: Seeded) -> Iterator[Seeded]:
    """A place for a training job called `fragile`, removed afterwards."""
    yield seeded
    seeded.delete("LoRATrainingJob", "fragile")
    eventually(lambda: not seeded.pods(LABEL, "fragile"), what="pods of the training gone", seconds=150)


def start(seeded: Seeded, output: str, *, steps: int = STEPS, **fields: Any) -> None:
    """Start a training of a few steps with a checkpoint after each."""
    spec = training_spec(
        output=output,
        dataset=DATASET,
        hyperparameters={"maxSteps": steps, "batchSize": 2, "maxLength": 256},
        checkpoint={"everySteps": 1},
        **fields,
    )
    seeded.apply("LoRATrainingJob", "fragile", spec)


def finished(seeded: Seeded) -> dict[str, Any]:
    """Wait until the training has ended well, and return it."""
    return seeded.ended_well("LoRATrainingJob", "fragile", seconds=TRAIN_SECONDS)


def train_pods(seeded: Seeded) -> list[dict[str, Any]]:
    """Return the pods of the stage Train."""
    pods = seeded.pods(LABEL, "fragile")
    return [pod for pod in pods if pod["metadata"]["labels"]["whetstone.dev/stage"] == "train"]


def test_killed_training_resumes_from_its_checkpoint(training: Seeded, images: dict[str, str]) -> None:
    image = push_trainer_with_failpoint(images["trainer"], "after-checkpoint:2")
    start(training, "killed", image=image)
    job = finished(training)
    assert job["status"]["attempts"] == 2
    first, second = train_pods(training)
    assert first["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
    log = training.kube.logs(namespace=training.namespace, pod=second["metadata"]["name"], container="main", lines=1000)
    assert "checkpoint-2" in log


@pytest.mark.long
def test_training_goes_on_from_its_checkpoint_after_the_node_was_rebooted(training: Seeded) -> None:
    start(training, "rebooted", steps=MANY_STEPS)

    def under_way() -> bool:
        status = training.get("LoRATrainingJob", "fragile").get("status") or {}
        return int((status.get("progress") or {}).get("step") or 0) >= 2

    eventually(under_way, what="a checkpoint of step 2", seconds=TRAIN_SECONDS)
    before = {job["metadata"]["uid"] for job in training.jobs(LABEL, "fragile")}
    restart()
    job = finished(training)
    assert {job["metadata"]["uid"] for job in training.jobs(LABEL, "fragile")} == before
    first, second = train_pods(training)
    assert not pod_is_ready(first)
    log = training.kube.logs(namespace=training.namespace, pod=second["metadata"]["name"], container="main", lines=1000)
    assert re.search(r"checkpoint-([2-9]|1\d)\b", log)
    assert job["status"]["attempts"] == 2
    assert job["status"]["adapter"]["uri"] == "pvc://adapters/rebooted"


@pytest.mark.long
def test_training_that_the_kernel_kills_goes_on_with_a_smaller_plan(training: Seeded, images: dict[str, str]) -> None:
    image = push_trainer_with_failpoint(images["trainer"], "fill:after-checkpoint:2")
    memory = {"requests": {"cpu": "200m", "memory": "2Gi"}, "limits": {"memory": "3Gi"}}
    start(training, "starved", image=image, resources=memory)
    status = finished(training)["status"]
    assert (status["attempts"], status["memoryKills"]) == (2, 1)
    first, second = train_pods(training)
    ended = first["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")
    assert status["plan"]["microBatchSize"] == 1
    assert status["plan"]["reason"].startswith("micro-batch 2 was killed for want of memory (3.00Gi a process), so 1")
    log = training.kube.logs(namespace=training.namespace, pod=second["metadata"]["name"], container="main", lines=1000)
    assert "checkpoint-2" in log
    assert status["adapter"]["uri"] == "pvc://adapters/starved"
    told = {event["reason"] for event in training.kube.list("events.k8s.io/v1", "Event", namespace=training.namespace)}
    assert "OutOfMemory" in told


def test_kill_just_before_the_result_is_published_publishes_it_once(training: Seeded, images: dict[str, str]) -> None:
    image = push_trainer_with_failpoint(images["trainer"], "before-publish")
    start(training, "unpublished", image=image)
    job = finished(training)
    assert job["status"]["attempts"] == 2
    assert job["status"]["adapter"]["uri"] == "pvc://adapters/unpublished"


def test_operator_killed_during_training_starts_nothing_twice(training: Seeded, kube: Kube) -> None:
    start(training, "orphan")
    eventually(
        lambda: any(pod["status"]["phase"] == "Running" for pod in train_pods(training)),
        what="training runs",
        seconds=120,
    )
    before = {job["metadata"]["uid"] for job in training.jobs(LABEL, "fragile")}
    operator = operator_pod(kube)
    restarts = operator["status"]["containerStatuses"][0]["restartCount"]
    kill(operator, "operator")
    eventually(
        lambda: operator_pod(kube)["status"]["containerStatuses"][0]["restartCount"] > restarts,
        what="operator started again",
        seconds=60,
    )
    job = finished(training)
    assert pod_is_ready(operator_pod(kube))
    assert {job["metadata"]["uid"] for job in training.jobs(LABEL, "fragile")} == before
    assert job["status"]["attempts"] == 1


def test_suspended_training_stops_and_goes_on_from_its_checkpoint(training: Seeded, kube: Kube) -> None:
    start(training, "paused")
    eventually(
        lambda: (
            (training.get("LoRATrainingJob", "fragile").get("status", {}).get("progress") or {}).get("phase") == "Train"
        ),
        what="training runs",
        seconds=150,
    )
    start(training, "paused", suspend=True)
    eventually(
        lambda: is_true(training.get("LoRATrainingJob", "fragile"), "Suspended") and not running(training),
        what="training held back",
        seconds=180,
    )
    start(training, "paused", suspend=False)
    assert is_true(finished(training), "Complete")


def running(seeded: Seeded) -> list[dict[str, Any]]:
    """Return the pods of the training that run."""
    return [pod for pod in seeded.pods(LABEL, "fragile") if pod["status"]["phase"] == "Running"]


def operator_pod(kube: Kube) -> dict[str, Any]:
    """Return the operator's pod."""
    labels = "app.kubernetes.io/component=operator"
    [pod] = kube.list("v1", "Pod", namespace=SYSTEM_NAMESPACE, labels=labels)
    return pod
