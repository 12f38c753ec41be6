"""The real operator against a real API server: a training in several pods."""

import pytest
from integration.operator_process import OperatorProcess
from integration.world import DATASET, World
from support.waiting import eventually

pytestmark = pytest.mark.integration
KIND = "LoRATrainingJob"


def test_several_pods_are_one_indexed_job_that_finds_its_first_pod(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.train(distributed={"nodes": 2})
    world.end_well(world.wait_job("train", "prepare"), dataset=DATASET)
    job = world.wait_job("train", "train")
    name = job["metadata"]["name"]
    assert job["spec"]["completionMode"] == "Indexed"
    assert (job["spec"]["completions"], job["spec"]["parallelism"]) == (2, 2)
    service = world.get("Service", name)
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    pods = eventually(lambda: len(found := world.pods(job)) == 2 and found, what="two pods")
    assert {pod["spec"]["hostname"] for pod in pods} == {f"{name}-0", f"{name}-1"}
    assert {pod["spec"]["subdomain"] for pod in pods} == {name}
    world.api.delete("Service", name, namespace=world.namespace)
    eventually(
        lambda: world.get("Service", name)["metadata"]["uid"] != service["metadata"]["uid"],
        what="the deleted Service is back",
    )


def test_processes_without_a_gpu_each_are_refused(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.train(distributed={"processesPerNode": 2}, resources={"limits": {"nvidia.com/gpu": 4}})
    told = world.wait_reason(KIND, "train", "InvalidSpec", condition="Stalled")
    assert "spec.distributed.processesPerNode is 2, and spec.resources.limits asks for 4 GPUs" in told["message"]
    assert world.jobs("train") == []
