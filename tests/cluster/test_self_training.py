"""The objects of `examples/self-training` on the node: a real model's own trials are collected, learned and scored.

Structure only. So small a model solves nothing by itself, and so every conversation is taken, whatever its reward.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.loop import READY_SECONDS, Seeded
from support.waiting import eventually
from whetstone_api.adapter_artifact import LINEAGE_FILE
from whetstone_dev.demo import plan
from whetstone_dev.demo.kube import read_manifests
from whetstone_dev.demo.watch import condition, is_true
from whetstone_dev.places import CHECKOUT
from whetstone_dev.tasks.folder import write_task
from whetstone_dev.tasks.generate import benchmark_tasks

pytestmark = [pytest.mark.cluster, pytest.mark.long]
SERVER, PRACTICE, TRAINING, BEFORE, AFTER = "learner", "practice", "own-work", "before", "after"
PRACTICE_SEED = 77
TASKS = 3
LOOP_SECONDS = 900.0


def fitted() -> list[dict[str, Any]]:
    """Return the manifests for this machine, with as little to do as shows the way of the rows."""
    manifests = plan.fit_to_cpu(read_manifests(CHECKOUT / "examples" / "self-training"), plan.SMALL)
    for obj in manifests:
        spec = obj["spec"]
        if obj["kind"] == "BenchmarkRun":
            spec["suite"]["harbor"]["tasks"] = {"limit": TASKS}
        if "collect" in spec:
            spec["collect"]["sft"]["minimumReward"] = "0"
            spec["attempts"] = 2
        if obj["kind"] == "LoRATrainingJob":
            del spec["hyperparameters"]["epochs"]
            spec["hyperparameters"] |= {"maxSteps": 2, "batchSize": 2, "maxLength": 512}
            spec["preparation"] = {"tooLong": "Truncate"}
    return manifests


@pytest.fixture(scope="module")
def applied(seeded: Seeded, images: dict[str, str]) -> Iterator[Seeded]:
    """All objects, applied at once; removed afterwards."""
    folder = seeded.host_folder("data") / PRACTICE
    for task in benchmark_tasks(PRACTICE_SEED, TASKS):
        write_task(task, folder, images["task"])
    manifests = fitted()
    for obj in manifests:
        seeded.kube.apply(obj, namespace=seeded.namespace)
    yield seeded
    for obj in manifests:
        seeded.delete(obj["kind"], obj["metadata"]["name"])
    eventually(lambda: not seeded.pods("model-server", SERVER), what="pods of the server gone", seconds=READY_SECONDS)


def test_model_learns_from_its_own_trials_and_is_scored_on_other_tasks(applied: Seeded) -> None:
    practice = applied.ended_well("BenchmarkRun", PRACTICE, seconds=LOOP_SECONDS)
    training = applied.ended_well("LoRATrainingJob", TRAINING, seconds=LOOP_SECONDS)
    after = applied.ended_well("BenchmarkRun", AFTER, seconds=LOOP_SECONDS)
    collected = practice["status"]["collected"]["sft"]
    assert collected["rows"] > 0
    lineage = json.loads((applied.host_folder("adapters") / TRAINING / LINEAGE_FILE).read_text())
    assert [(one["digest"], one["rows"]) for one in lineage["datasets"]] == [(collected["digest"], collected["rows"])]
    adapter = training["status"]["adapter"]
    assert after["status"]["target"]["digest"] == adapter["digest"]
    assert after["status"]["suiteDigest"] != practice["status"]["suiteDigest"]
    assert after["status"]["comparison"]["ties"] + after["status"]["comparison"]["wins"] <= TASKS
    judged = condition(after, "GatePassed")
    assert judged is not None
    assert judged["reason"] != "Contaminated"
    [pod] = applied.pods("model-server", SERVER)
    restarts = {item["name"]: item["restartCount"] for item in pod["status"]["containerStatuses"]}
    assert restarts["engine"] == 0
    assert is_true(after, "Valid")


def test_score_on_the_tasks_of_the_practice_is_contaminated(applied: Seeded) -> None:
    applied.ended_well("LoRATrainingJob", TRAINING, seconds=LOOP_SECONDS)
    spec = next(obj["spec"] for obj in fitted() if obj["metadata"]["name"] == AFTER)
    spec["suite"]["harbor"]["dataset"]["uri"] = f"pvc://data/{PRACTICE}"
    spec |= {"gates": [{"metric": "Mean", "minimum": "0"}], "output": {"uri": "pvc://results/again"}}
    del spec["baselineRef"]
    applied.apply("BenchmarkRun", "again", spec)
    run = applied.ended_well("BenchmarkRun", "again", seconds=LOOP_SECONDS)
    judged = condition(run, "GatePassed")
    assert judged is not None
    assert (judged["status"], judged["reason"]) == ("False", "Contaminated")
    applied.delete("BenchmarkRun", "again")
