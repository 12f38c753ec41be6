"""A training that hangs, on real Jobs: found by the reports that do not come, started again once, then failed."""

from typing import Any

import pytest
from integration.operator_process import OperatorProcess
from integration.world import DATASET, World
from support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.long]
KIND = "LoRATrainingJob"
STEP = {"phase": "Train", "step": 3, "maxSteps": 10, "loss": 1.0}


def test_training_without_a_step_is_started_again_once_and_then_fails(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.train(stall={"minutes": 1})
    world.end_well(world.wait_job("train", "prepare"), dataset=DATASET)
    first = world.wait_job("train", "train")
    path = f"loratrainingjobs/{world.namespace}/train"
    assert operator.report(path, token=world.pod_token(world.run_pod(first)), body=STEP) == 202

    def second() -> dict[str, Any] | None:
        jobs = [one for one in world.jobs("train") if one["metadata"]["name"] == first["metadata"]["name"]]
        return next((one for one in jobs if one["metadata"]["uid"] != first["metadata"]["uid"]), None)

    again = eventually(second, what="another Job after a minute", seconds=120)
    assert world.get(KIND, "train")["status"]["stalls"] == 1
    assert again["metadata"]["annotations"]["whetstone.dev/stalls"] == "1"
    world.wait_events("TrainingStalled")
    operator.kill()
    operator.start()
    assert operator.report(path, token=world.pod_token(world.run_pod(again)), body=STEP) == 202

    def failed() -> dict[str, Any] | None:
        found = world.condition(KIND, "train", "Failed")
        assert found is not None, f"{world.get(KIND, 'train')['status']['conditions']}"
        return found

    told = eventually(failed, what="the end", seconds=120)
    assert told["reason"] == "TrainingStalled"
    assert "no step for 1 minutes after step 3, as another one before it" in told["message"]
    eventually(lambda: len(world.jobs("train")) == 1, what="only the finished Job of Prepare is left")
    eventually(lambda: not world.pods(again), what="its pods are gone")
