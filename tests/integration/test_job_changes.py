"""What of a training may change while it runs, on real Jobs: the deadline, the queue, the resources."""

from typing import Any

import pytest
from integration.operator_process import OperatorProcess
from integration.world import ADAPTER, DATASET, World
from support.waiting import eventually

pytestmark = pytest.mark.integration
KIND = "LoRATrainingJob"
SMALL, LARGE = {"limits": {"memory": "1Gi"}}, {"limits": {"memory": "2Gi"}}


def change(world: World, **fields: Any) -> None:
    world.api.merge(KIND, "train", {"spec": fields}, namespace=world.namespace)


def follower(world: World, stage: str, job: dict[str, Any]) -> dict[str, Any]:
    """Wait for the Job that takes a Job's place."""

    def found() -> dict[str, Any] | None:
        jobs = [one for one in world.jobs("train") if one["metadata"]["name"] == job["metadata"]["name"]]
        return next((one for one in jobs if one["metadata"]["uid"] != job["metadata"]["uid"]), None)

    return eventually(found, what=f"another Job of stage {stage}")


def test_deadline_of_a_running_job_moves(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.train(activeDeadlineSeconds=3000)
    job = world.wait_job("train", "prepare")
    for seconds in (6000, None):
        change(world, activeDeadlineSeconds=seconds)

        def moved(seconds: int | None = seconds) -> bool:
            return world.get("Job", job["metadata"]["name"])["spec"].get("activeDeadlineSeconds") == seconds

        eventually(moved, what=f"a deadline of {seconds}")
    assert world.wait_job("train", "prepare")["metadata"]["uid"] == job["metadata"]["uid"]


def test_other_resources_take_a_new_job_and_leave_finished_ones_alone(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.train(resources=SMALL)
    prepare = world.wait_job("train", "prepare")
    world.end_well(prepare, dataset=DATASET)
    train = world.wait_job("train", "train")
    pod = eventually(lambda: world.pods(train), what="a pod")[0]
    change(world, resources=LARGE)
    second = follower(world, "train", train)
    assert second["spec"]["template"]["spec"]["containers"][0]["resources"] == LARGE
    assert pod["metadata"]["uid"] not in {one["metadata"]["uid"] for one in world.pods(second)}
    assert world.wait_job("train", "prepare")["metadata"]["uid"] == prepare["metadata"]["uid"]
    world.end_well(second, adapter=ADAPTER)
    world.wait_reason(KIND, "train", "Succeeded", condition="Complete")


def test_new_job_starts_only_when_the_pods_of_the_old_one_are_gone(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.train(resources=SMALL)
    job = world.wait_job("train", "prepare")
    pod = eventually(lambda: world.pods(job), what="a pod")[0]["metadata"]["name"]
    keep = {"metadata": {"finalizers": ["batch.kubernetes.io/job-tracking", "example.com/saves-a-checkpoint"]}}
    world.api.merge("Pod", pod, keep, namespace=world.namespace)
    change(world, resources=LARGE)
    eventually(lambda: "deletionTimestamp" in world.get("Pod", pod)["metadata"], what="the pod is stopped")
    world.wait_reason(KIND, "train", "Progressing")
    assert world.jobs("train") == []
    world.api.merge("Pod", pod, {"metadata": {"finalizers": None}}, namespace=world.namespace)
    follower(world, "prepare", job)


def test_other_number_of_gpus_is_refused_and_the_training_goes_on_once_it_is_back(
    world: World, operator: OperatorProcess
) -> None:
    world.claims()
    one, two = ({"limits": {"nvidia.com/gpu": count}} for count in (1, 2))
    world.train(resources=one)
    world.end_well(world.wait_job("train", "prepare"), dataset=DATASET)
    train = world.wait_job("train", "train")
    change(world, resources=two)
    told = world.wait_reason(KIND, "train", "InvalidSpec", condition="Stalled")
    assert told["message"].startswith("spec.resources.limits: the training has begun with 1 processes")
    change(world, resources=one)
    world.wait_reason(KIND, "train", "Training")
    assert world.wait_job("train", "train")["metadata"]["uid"] == train["metadata"]["uid"]


def test_running_job_moves_into_a_queue_and_a_waiting_one_between_queues(
    world: World, operator: OperatorProcess
) -> None:
    world.claims()
    world.train()
    job = world.wait_job("train", "prepare")
    eventually(lambda: world.pods(job), what="a pod")
    change(world, queueName="team")
    queued = follower(world, "prepare", job)
    assert queued["spec"]["suspend"] is True
    assert world.pods(queued) == []
    change(world, queueName="other")
    eventually(
        lambda: world.wait_job("train", "prepare")["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "other",
        what="the other queue",
    )
    assert world.wait_job("train", "prepare")["metadata"]["uid"] == queued["metadata"]["uid"]
    change(world, queueName=None)
    free = follower(world, "prepare", queued)
    eventually(lambda: world.pods(free), what="a pod without a queue")
