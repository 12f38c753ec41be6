"""What a Job and its pods say about how the work stands."""

from typing import Any

import pytest
from whetstone_api.reports import Outcome, TerminationReport
from whetstone_api.vocabulary import Reason
from whetstone_operator.controllers.job_outcome import (
    Failed,
    Lost,
    Running,
    Succeeded,
    attempts,
    ended_for_memory,
    judge,
    newest_ending,
)


def make_job(condition: str | None = None, *, reason: str = "", **status: Any) -> dict[str, Any]:
    conditions = [{"type": condition, "status": "True", "reason": reason, "message": "words of the Job"}]
    return {
        "metadata": {"name": "t-train-0"},
        "spec": {"activeDeadlineSeconds": 60},
        "status": {**status, "conditions": conditions if condition else []},
    }


def make_pod(*, message: str, code: int = 0, finished: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    terminated = {"exitCode": code, "reason": "Error" if code else "Completed", "message": message}
    return {
        "metadata": {"name": "p"},
        "status": {
            "containerStatuses": [{"name": "main", "state": {"terminated": {**terminated, "finishedAt": finished}}}]
        },
    }


def report(outcome: Outcome, *, reason: str = "Succeeded", message: str = "done") -> str:
    return TerminationReport(outcome=outcome, reason=reason, message=message).to_termination_message()


def test_complete_job_gives_its_report() -> None:
    outcome = judge(make_job("Complete"), [make_pod(message=report(Outcome.SUCCEEDED))])
    assert isinstance(outcome, Succeeded)
    assert outcome.report.message == "done"


def test_of_pods_that_end_in_the_same_second_the_one_that_succeeded_is_the_last() -> None:
    stopped = make_pod(message=report(Outcome.RETRY, reason="Progressing"), code=143)
    succeeded = make_pod(message=report(Outcome.SUCCEEDED))
    for pods in ([stopped, succeeded], [succeeded, stopped]):
        assert isinstance(judge(make_job("Complete"), pods), Succeeded)


def test_complete_job_without_pods_is_lost() -> None:
    assert judge(make_job("Complete"), []) == Lost()


def test_complete_job_whose_pod_left_no_report_fails_instead_of_running_forever() -> None:
    outcome = judge(make_job("Complete"), [make_pod(message="not a report")])
    assert isinstance(outcome, Failed)
    assert "not a report" in outcome.message


def test_user_error_keeps_its_reason_and_words() -> None:
    text = report(Outcome.FAILED, reason="DatasetInvalid", message="spec.datasets[0]: row 3 has no assistant turn")
    outcome = judge(make_job("Failed", reason="PodFailurePolicy"), [make_pod(message=text, code=65)])
    assert outcome == Failed(Reason.DATASET_INVALID, "spec.datasets[0]: row 3 has no assistant turn")


def fetching(code: int, message: str = "") -> dict[str, Any]:
    """A pod whose container that fetches has ended, so that its main one never starts, or is at work."""
    terminated = {"exitCode": code, "reason": "Error" if code else "Completed", "message": message}
    main = {"waiting": {"reason": "PodInitializing"}} if code else {"running": {}}
    fetch = {"name": "fetch", "state": {"terminated": {**terminated, "finishedAt": "2026-01-01T00:00:00Z"}}}
    status = {"initContainerStatuses": [fetch], "containerStatuses": [{"name": "main", "state": main}]}
    return {"metadata": {"name": "p"}, "status": status}


def test_what_the_container_that_fetches_found_wrong_is_told() -> None:
    text = report(Outcome.FAILED, reason="SourceNotFound", message="spec.suite.harbor.dataset (s3://a/b): uri …")
    outcome = judge(make_job("Failed", reason="PodFailurePolicy"), [fetching(65, text)])
    assert outcome == Failed(Reason.SOURCE_NOT_FOUND, "spec.suite.harbor.dataset (s3://a/b): uri …")


def test_a_place_that_never_answered_is_told_with_the_count() -> None:
    text = report(Outcome.RETRY, reason="SourceUnreachable", message="the place does not answer")
    outcome = judge(make_job("Failed", reason="BackoffLimitExceeded", failed=5), [fetching(1, text)])
    assert isinstance(outcome, Failed)
    assert outcome.reason is Reason.ATTEMPTS_EXHAUSTED
    assert "failed 5 times" in outcome.message
    assert "the place does not answer" in outcome.message


def test_a_pod_that_has_fetched_has_not_ended() -> None:
    assert newest_ending([fetching(0)]) is None


def test_a_container_that_fetches_and_cannot_start_is_told() -> None:
    waiting = {"reason": "CreateContainerConfigError", "message": "no such secret"}
    status = {"initContainerStatuses": [{"name": "fetch", "state": {"waiting": waiting}}]}
    assert judge(make_job(), [{"metadata": {"name": "p"}, "status": status}]) == Running(
        "pod p cannot start: CreateContainerConfigError: no such secret"
    )


def test_crashed_job_tells_its_last_words_and_count() -> None:
    pods = [
        make_pod(message="first crash", code=1, finished="2026-01-01T00:00:00Z"),
        make_pod(message="RuntimeError: out of luck", code=1, finished="2026-01-01T00:01:00Z"),
    ]
    outcome = judge(make_job("Failed", reason="BackoffLimitExceeded", failed=2), pods)
    assert isinstance(outcome, Failed)
    assert outcome.reason is Reason.ATTEMPTS_EXHAUSTED
    assert "failed 2 times" in outcome.message
    assert "RuntimeError: out of luck (exit code 1" in outcome.message


def killed_for_memory(*, code: int = 137) -> dict[str, Any]:
    """A pod, or a process of it, that the kernel has killed, as the kubelet tells it."""
    pod = make_pod(message="", code=code)
    pod["status"]["containerStatuses"][0]["state"]["terminated"]["reason"] = "OOMKilled"
    return pod


def test_end_for_want_of_memory_is_told_apart() -> None:
    assert ended_for_memory(killed_for_memory())
    assert ended_for_memory(killed_for_memory(code=75))
    assert not ended_for_memory(killed_for_memory(code=0))
    assert not ended_for_memory(make_pod(message="", code=137))


def test_job_that_gave_up_for_want_of_memory_names_the_field() -> None:
    outcome = judge(make_job("Failed", reason="BackoffLimitExceeded", failed=3), [killed_for_memory()])
    assert isinstance(outcome, Failed)
    assert "(exit code 137, OOMKilled); give it more in spec.resources.limits.memory" in outcome.message


@pytest.mark.parametrize("cause", ["PodFailurePolicy", "BackoffLimitExceeded", "DeadlineExceeded"])
def test_what_a_failed_job_has_done_is_kept(cause: str) -> None:
    ended = Outcome.FAILED if cause == "PodFailurePolicy" else Outcome.RETRY
    text = TerminationReport(outcome=ended, reason="SourceUnreachable", message="m", result={"merged": 1}).to_json()
    outcome = judge(make_job("Failed", reason=cause), [make_pod(message=text, code=65)])
    assert isinstance(outcome, Failed)
    assert outcome.result == {"merged": 1}


def test_deadline_names_the_field() -> None:
    outcome = judge(make_job("Failed", reason="DeadlineExceeded"), [])
    assert isinstance(outcome, Failed)
    assert outcome.reason is Reason.DEADLINE_EXCEEDED
    assert "spec.activeDeadlineSeconds (60 s)" in outcome.message


def test_reason_of_another_release_becomes_pod_failed() -> None:
    text = report(Outcome.FAILED, reason="FromTheFuture", message="no idea")
    assert judge(make_job("Failed"), [make_pod(message=text, code=65)]) == Failed(Reason.POD_FAILED, "no idea")


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (
            {"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}]},
            "pod p cannot start: ImagePullBackOff: no such image",
        ),
        (
            {"conditions": [{"type": "PodScheduled", "reason": "Unschedulable", "message": "0/1 nodes"}]},
            "pod p cannot be scheduled: 0/1 nodes",
        ),
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}, None),
        ({"containerStatuses": [{"state": {"running": {}}}]}, None),
    ],
)
def test_running_job_tells_what_keeps_its_pod(status: dict[str, Any], words: str | None) -> None:
    assert judge(make_job(), [{"metadata": {"name": "p"}, "status": status}]) == Running(words)


def test_attempts_count_every_pod() -> None:
    assert attempts(make_job(active=1, failed=2)) == 3
