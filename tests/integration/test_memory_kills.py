"""A training's pod that the kernel kills for want of memory: told to the pods after it, whoever is away meanwhile."""

import json
from typing import Any

import pytest
from integration.operator_process import OperatorProcess
from integration.world import ADAPTER, DATASET, World, user_error
from support.waiting import eventually

pytestmark = pytest.mark.integration
KIND = "LoRATrainingJob"
PLAN = {"microBatchSize": 2, "gradientCheckpointing": False, "packing": "Padded", "attention": "sdpa"} | {
    "compiled": False,
    "reason": "micro-batch 4 was killed for want of memory (8.00Gi a process), so 2 with activations kept",
}


def killed_pods(world: World) -> list[str]:
    """Return the pods that later ones are told of."""
    found = world.api.get("ConfigMap", "train-config", namespace=world.namespace)
    assert found is not None
    pods: list[str] = json.loads(found["data"]["config.json"])["killedPods"]
    return pods


def training(world: World) -> dict[str, Any]:
    """Begin a training, and return its Job Train."""
    world.claims()
    world.train(resources={"limits": {"memory": "8Gi"}})
    world.end_well(world.wait_job("train", "prepare"), dataset=DATASET)
    return world.wait_job("train", "train")


def test_pod_that_is_killed_for_want_of_memory_is_told_to_the_next_one(world: World, operator: OperatorProcess) -> None:
    job = training(world)
    assert killed_pods(world) == []
    first = world.kill_for_memory(job)
    told = world.wait_reason(KIND, "train", "OutOfMemory")["message"]
    assert told.startswith(f"pod {first['metadata']['name']} took more memory than its limit of 8Gi")
    assert told.endswith("the next one goes on from the newest checkpoint with a smaller plan")
    assert killed_pods(world) == [first["metadata"]["uid"]]
    second = world.run_pod(job)
    world.wait_reason(KIND, "train", "Training")
    path = f"loratrainingjobs/{world.namespace}/train"
    report = {"phase": "Train", "step": 5, "maxSteps": 9, "plan": PLAN}
    assert operator.report(path, token=world.pod_token(second), body=report) == 202
    eventually(lambda: world.get(KIND, "train")["status"].get("plan") == PLAN, what="the plan, before the end")
    world.end_well(job, adapter=ADAPTER, metrics={}, plan=PLAN)
    world.wait_reason(KIND, "train", "Succeeded", condition="Complete")
    status = world.get(KIND, "train")["status"]
    assert (status["memoryKills"], status["plan"]) == (1, PLAN)
    world.wait_events("OutOfMemory", "Succeeded")


@pytest.mark.long
def test_operator_that_was_away_tells_of_the_pods_later_and_a_retry_does_not_forget_them(
    world: World, operator: OperatorProcess
) -> None:
    job = training(world)
    operator.kill()
    first = world.kill_for_memory(job)["metadata"]["uid"]
    second = world.kill_for_memory(job)["metadata"]["uid"]
    assert killed_pods(world) == []
    operator.start()
    eventually(lambda: sorted(killed_pods(world)) == sorted([first, second]), what="both pods are told of")
    world.end_pod(job, user_error("DeviceTooSmall", "the container's memory is too small"))
    world.wait_reason(KIND, "train", "DeviceTooSmall", condition="Failed")
    note = {"metadata": {"annotations": {"whetstone.dev/retry-requested-at": "1"}}}
    more = {"spec": {"resources": {"limits": {"memory": "16Gi"}}}}
    world.api.merge(KIND, "train", {**note, **more}, namespace=world.namespace)
    world.wait_reason(KIND, "train", "Preparing")
    assert sorted(killed_pods(world)) == sorted([first, second])
