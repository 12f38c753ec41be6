"""How a Job stands in its queue."""

from typing import Any

import pytest
from whetstone_api.vocabulary import Reason
from whetstone_operator.controllers.queueing import standing


def make_job(*, suspended: bool = True) -> dict[str, Any]:
    labels = {"kueue.x-k8s.io/queue-name": "team"}
    return {"metadata": {"name": "t-train-0", "labels": labels}, "spec": {"suspend": suspended}}


def make_workload(*, active: bool = True, **conditions: tuple[str, str, str]) -> dict[str, Any]:
    told = [
        {"type": kind, "status": status, "reason": reason, "message": message}
        for kind, (status, reason, message) in conditions.items()
    ]
    return {"metadata": {"name": "w"}, "spec": {"active": active}, "status": {"conditions": told}}


PENDING = ("False", "Pending", "no quota is free")
EVICTED = ("True", "Preempted", "for a better one")
STOPPED = ("True", "Deactivated", "the workload is deactivated")


@pytest.mark.parametrize(
    ("workload", "reason", "words"),
    [
        (make_workload(), Reason.QUEUED, "has not said why"),
        (make_workload(QuotaReserved=PENDING), Reason.QUEUED, "no quota is free"),
        (make_workload(QuotaReserved=PENDING, Evicted=EVICTED), Reason.PREEMPTED, "for a better one"),
        (make_workload(QuotaReserved=PENDING, Evicted=STOPPED), Reason.QUEUED, "no quota is free"),
        (make_workload(active=False, Evicted=STOPPED), Reason.DEACTIVATED, "set spec.active of Workload w to true"),
    ],
)
def test_suspended_job_has_no_quota_and_says_what_its_workload_says(
    workload: dict[str, Any], reason: Reason, words: str
) -> None:
    found = standing(make_job(), workload, before=Reason.ADMITTED)
    assert (found.reserved, found.reason) == (False, reason)
    assert words in found.message


def test_quota_that_is_reserved_is_told_while_checks_are_waited_for() -> None:
    checks = ("False", "AdmissionChecks", "a node is being ordered")
    workload = make_workload(QuotaReserved=("True", "QuotaReserved", ""), Admitted=checks)
    found = standing(make_job(), workload, before=None)
    assert (found.reserved, found.reason) == (True, Reason.QUEUED)
    assert "a node is being ordered" in found.message


@pytest.mark.parametrize(
    ("before", "reason"), [(None, Reason.QUEUED), (Reason.ADMITTED, Reason.PREEMPTED), (Reason.QUEUED, Reason.QUEUED)]
)
def test_without_a_workload_to_read_a_job_that_ran_counts_as_preempted(before: str | None, reason: Reason) -> None:
    assert standing(make_job(), None, before=before).reason is reason


def test_stopped_run_is_told_to_keep_its_trials_and_a_training_its_checkpoint() -> None:
    run = make_job()
    run["metadata"]["labels"]["whetstone.dev/benchmark-run"] = "r"
    workload = make_workload(Evicted=EVICTED)
    assert "keeps its finished trials" in standing(run, workload, before=None).message
    assert "from its last checkpoint" in standing(make_job(), workload, before=None).message


def test_running_job_is_admitted() -> None:
    workload = make_workload()
    workload["status"]["admission"] = {"clusterQueue": "gpus"}
    found = standing(make_job(suspended=False), workload, before=None)
    assert (found.reserved, found.reason) == (True, Reason.ADMITTED)
    assert "ClusterQueue gpus" in found.message
