"""The real operator with the chart's price table: what LoRATrainingJobs cost, through attempts and restarts."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from integration.api import Object
from integration.operator_process import OperatorProcess
from integration.test_autoscaling import rendered
from integration.world import ADAPTER, DATASET, World, user_error
from support.waiting import eventually

pytestmark = pytest.mark.integration
KIND = "LoRATrainingJob"
GPU = "nvidia.com/gpu"
BASIS = "time of the pods on their nodes, and the time left"
TABLE = {"currency": "EUR", "devices": [{"resource": GPU, "perHour": "3", "teraflops": "250"}]}
ESTIMATE = {"memory": "9.18Gi", "least": "7.15Gi", "plan": "micro-batch 4", "basis": []}


@pytest.fixture
def operator(operator_kubeconfig: Path, namespace: str, tmp_path: Path) -> Iterator[OperatorProcess]:
    """The operator with the variables that the chart gives it."""
    process = OperatorProcess(
        kubeconfig=operator_kubeconfig,
        namespace=namespace,
        log=tmp_path / "operator.log",
        environment={"WHETSTONE_PRICES": prices_variable()["value"]},
    )
    process.start()
    yield process
    process.kill()


def prices_variable() -> Object:
    """Return the variable with the table as the chart renders it."""
    deployment = next(
        one for one in rendered("--set-json", f"prices={json.dumps(TABLE)}") if one["kind"] == "Deployment"
    )
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    found: Object = next(one for one in container["env"] if one["name"] == "WHETSTONE_PRICES")
    return found


def test_without_a_table_the_chart_gives_none() -> None:
    deployment = next(one for one in rendered() if one["kind"] == "Deployment")
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert not any(one["name"] == "WHETSTONE_PRICES" for one in container["env"])


def place(world: World, job: Object, hours: float) -> None:
    """Tell as a scheduler does that a Job's pod came to a node so many hours ago."""
    pod = eventually(
        lambda: next((one for one in world.pods(job) if one.get("status", {}).get("phase") in (None, "Pending")), None),
        what="a pod",
    )
    moment = (datetime.now(UTC) - timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ")
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": moment}
    world.set_pod_status(pod, {"phase": "Running", "conditions": [scheduled]})


def told(world: World, **wanted: Any) -> Object:
    """Wait for a cost with these fields and return it."""

    def found() -> Object | None:
        cost: Object = world.get(KIND, "train")["status"].get("cost", {})
        assert wanted.items() <= cost.items(), cost
        return cost

    return eventually(found, what=f"a cost with {wanted}")


def test_a_training_tells_its_cost_at_work_and_over_its_attempts(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.train(resources={"limits": {GPU: 2}})
    found = {**ESTIMATE, "tokens": 2, "operations": "1.8e+18"}
    world.end_well(world.wait_job("train", "prepare"), dataset=DATASET, estimate=found)
    job = world.wait_job("train", "train")
    estimate = eventually(lambda: world.get(KIND, "train")["status"].get("estimate"), what="an estimate")
    expected = {"resource": GPU, "perHour": "3", "currency": "EUR", "devices": "2", "deviceHours": "2", "amount": "6"}
    assert estimate["cost"].items() >= expected.items()
    place(world, job, 1)
    pod = world.pods(job)[0]
    path = f"loratrainingjobs/{world.namespace}/train"
    body = {"phase": "Train", "step": 10, "maxSteps": 20, "etaSeconds": 3600}
    assert operator.report(path, token=world.pod_token(pod), body=body) == 202
    cost = told(world, resource=GPU, perHour="3", currency="EUR", basis=f"{BASIS}, measured at step 10 of 20")
    assert 6 <= float(cost["amount"]) < 7
    assert 12 <= float(cost["expected"]) < 13
    world.end_pod(job, user_error("TrainingDiverged", "spoiled"))
    world.wait_reason(KIND, "train", "TrainingDiverged", condition="Failed")
    ended = told(world, basis="time of the pods on their nodes")
    assert "expected" not in ended
    operator.kill()
    operator.start()
    world.api.merge(
        KIND,
        "train",
        {"metadata": {"annotations": {"whetstone.dev/retry-requested-at": "1"}}},
        namespace=world.namespace,
    )
    eventually(lambda: world.get(KIND, "train")["status"].get("handledRetry") == "1", what="the retry")
    world.end_well(unended(world, "prepare"), dataset=DATASET)
    again = unended(world, "train")
    place(world, again, 2)
    world.end_well(again, adapter=ADAPTER, metrics={})
    world.wait_reason(KIND, "train", "Succeeded", condition="Complete")
    assert {one["name"] for one in told(world)["pods"]} >= {pod["metadata"]["name"]}


def unended(world: World, stage: str) -> Object:
    """Wait for a Job of a stage that has not ended, and return it."""

    def found() -> Object | None:
        for job in world.jobs("train"):
            conditions = job.get("status", {}).get("conditions", [])
            if f"-{stage}-" in job["metadata"]["name"] and not any(
                one["type"] in ("Complete", "Failed", "FailureTarget") for one in conditions
            ):
                return job
        return None

    return eventually(found, what=f"another Job of stage {stage}")
