"""How Kubernetes' own Job controller takes the ends of our pods: exit codes, evictions, deadlines, time to live."""

import pytest
from integration.operator_process import OperatorProcess
from integration.world import ADAPTER, DATASET, World
from support.waiting import eventually
from whetstone_api.jobs import EXIT_STOPPED
from whetstone_api.reports import Outcome, TerminationReport

pytestmark = pytest.mark.integration
KIND = "LoRATrainingJob"
AGAIN = TerminationReport(outcome=Outcome.RETRY, reason="Progressing", message="stopped after step 3")
LOST = TerminationReport(outcome=Outcome.RETRY, reason="InternalError", message="the volume is gone")


@pytest.mark.parametrize(
    ("code", "evicted", "counted"),
    [(EXIT_STOPPED, False, 0), (137, True, 0), (75, False, 1)],
    ids=["stopped with a checkpoint", "evicted", "lost"],
)
def test_pod_that_ends_early_is_replaced_and_counts_only_where_something_failed(
    world: World, operator: OperatorProcess, code: int, evicted: bool, counted: int
) -> None:
    world.claims()
    world.train()
    job = world.wait_job("train", "prepare")
    first = eventually(lambda: world.pods(job), what="a pod")[0]["metadata"]["uid"]
    world.end_pod(job, AGAIN, code=code, evicted=evicted)
    eventually(lambda: {pod["metadata"]["uid"] for pod in world.pods(job)} - {first}, what="another pod", seconds=60)
    assert world.condition(KIND, "train", "Failed") is None
    world.end_well(job, dataset=DATASET)
    world.wait_job("train", "train")
    assert world.get("Job", job["metadata"]["name"])["status"].get("failed", 0) == counted


@pytest.mark.long
def test_pod_that_fails_again_and_again_fails_the_job_in_the_end(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.train()
    job = world.wait_job("train", "prepare")
    for number in range(3):

        def another(number: int = number) -> bool:
            return len(world.pods(job)) == number + 1

        eventually(another, what=f"pod {number}", seconds=90)
        world.end_pod(job, LOST, code=75)
    failed = world.wait_reason(KIND, "train", "AttemptsExhausted", condition="Failed")
    assert failed["message"].endswith("failed 3 times and gave up; the last pod said: the volume is gone")


def test_deadline_ends_the_job_and_a_retry_may_have_a_longer_one(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.train(activeDeadlineSeconds=1)
    job = world.wait_job("train", "prepare")
    failed = world.wait_reason(KIND, "train", "DeadlineExceeded", condition="Failed")
    assert "spec.activeDeadlineSeconds (1 s); raise it and ask for a retry" in failed["message"]
    eventually(lambda: not world.pods(job), what="the pod is gone")
    note = {"metadata": {"annotations": {"whetstone.dev/retry-requested-at": "1"}}}
    world.api.merge(KIND, "train", {"spec": {"activeDeadlineSeconds": 600}, **note}, namespace=world.namespace)
    world.wait_reason(KIND, "train", "Preparing")


def test_time_to_live_removes_the_jobs_and_nothing_else(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.train(ttlSecondsAfterFinished=1)
    world.end_well(world.wait_job("train", "prepare"), dataset=DATASET)
    world.end_well(world.wait_job("train", "train"), adapter=ADAPTER)
    world.wait_reason(KIND, "train", "Succeeded", condition="Complete")
    eventually(lambda: not world.jobs("train"), what="the Jobs are gone")
    assert world.get(KIND, "train")["status"]["adapter"] == ADAPTER
    assert world.api.get("ConfigMap", "train-config", namespace=world.namespace) is not None
    note = {"metadata": {"annotations": {"example.com/touched": "1"}}}
    before = operator.metric("whetstone_reconcile_total", controller="loratrainingjobs")
    world.api.merge(KIND, "train", note, namespace=world.namespace)
    eventually(
        lambda: operator.metric("whetstone_reconcile_total", controller="loratrainingjobs") > before,
        what="a reconcile",
    )
    assert world.jobs("train") == []
    assert world.condition(KIND, "train", "Complete") is not None
