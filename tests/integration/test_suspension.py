"""Who may start and stop Jobs: `spec.suspend`, a queue, or somebody else. No Kueue is there; for that `test_kueue`."""

import pytest
from integration.operator_process import OperatorProcess
from integration.world import World
from support.waiting import eventually

pytestmark = pytest.mark.integration
KIND = "LoRATrainingJob"


def test_queued_job_waits_for_a_kueue_that_is_not_there(world: World, operator: OperatorProcess) -> None:
    world.claims()
    body = {"apiVersion": "whetstone.dev/v1alpha1", "kind": KIND}
    labels = {"kueue.x-k8s.io/priority-class": "urgent"}
    world.train(queueName="team")
    job = world.wait_job("train", "prepare")
    assert job["spec"]["suspend"] is True
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    assert not any("kueue" in label for label in job["spec"]["template"]["metadata"]["labels"])
    told = world.wait_reason(KIND, "train", "Queued", condition="QuotaReserved")
    assert (told["status"], "Kueue must be installed" in told["message"]) == ("False", True)
    world.wait_reason(KIND, "train", "Queued")
    spec = world.get(KIND, "train")["spec"]
    world.api.create({**body, "metadata": {"name": "first", "labels": labels}, "spec": spec}, namespace=world.namespace)
    assert world.wait_job("first", "prepare")["metadata"]["labels"].items() >= labels.items()


def test_queued_job_that_was_started_by_hand_is_held_and_left_to_its_queue(
    world: World, operator: OperatorProcess
) -> None:
    world.claims()
    world.train(queueName="team")
    job = world.wait_job("train", "prepare")["metadata"]["name"]
    world.api.merge("Job", job, {"spec": {"suspend": False}}, namespace=world.namespace)
    assert world.wait_reason(KIND, "train", "Admitted", condition="QuotaReserved")["status"] == "True"
    world.wait_reason(KIND, "train", "Preparing")
    world.api.merge(KIND, "train", {"spec": {"suspend": True}}, namespace=world.namespace)
    world.wait_reason(KIND, "train", "Suspended", condition="QuotaReserved")
    eventually(lambda: world.get("Job", job)["spec"]["suspend"], what="the Job is suspended")
    world.api.merge(KIND, "train", {"spec": {"suspend": False}}, namespace=world.namespace)
    world.wait_reason(KIND, "train", "Queued", condition="QuotaReserved")
    assert world.get("Job", job)["spec"]["suspend"] is True


def test_job_that_somebody_else_suspends_is_left_to_them(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.train()
    job = world.wait_job("train", "prepare")["metadata"]["name"]
    world.wait_reason(KIND, "train", "Preparing")
    world.api.merge("Job", job, {"spec": {"suspend": True}}, namespace=world.namespace)
    world.wait_reason(KIND, "train", "JobSuspended")
    assert world.get("Job", job)["spec"]["suspend"] is True
    world.api.merge("Job", job, {"spec": {"suspend": False}}, namespace=world.namespace)
    world.wait_reason(KIND, "train", "Preparing")
