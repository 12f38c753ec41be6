"""What keeps an engine pod from becoming ready."""

import json
from typing import Any

from whetstone_operator.controllers.engine_pods import fetching_pod, find_problem, is_live, started_at

TIME = "2026-01-01T01:00:00Z"


def pod(name: str = "p", *, ready: bool = False, **status: Any) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": str(ready)}, *status.pop("conditions", [])]
    return {"metadata": {"name": name}, "status": {"conditions": conditions, **status}}


def engine(*, restarts: int = 0, code: int | None = None, waiting: dict[str, str] | None = None) -> dict[str, Any]:
    status: dict[str, Any] = {"name": "engine", "image": "r/engine:1", "restartCount": restarts, "state": {}}
    if waiting:
        status["state"] = {"waiting": waiting}
    if code is not None:
        status["lastState"] = {"terminated": {"exitCode": code, "reason": "OOMKilled"}}
    return status


def test_starting_pod_has_no_problem() -> None:
    assert find_problem([pod(containerStatuses=[engine()])]) is None


def test_ready_pod_has_no_problem_whatever_its_past() -> None:
    assert find_problem([pod(ready=True, containerStatuses=[engine(restarts=9, code=137)])]) is None


def test_unschedulable_pod_is_waited_for_with_the_schedulers_words() -> None:
    problem = find_problem(
        [pod(conditions=[{"type": "PodScheduled", "status": "False", "message": "Insufficient memory"}])]
    )
    assert problem is not None
    assert (problem.stalled, problem.reason) == (False, "PodFailed")
    assert "Insufficient memory" in problem.message


def test_image_problem_stalls() -> None:
    waiting = {"reason": "ErrImagePull", "message": "not found"}
    problem = find_problem([pod(containerStatuses=[engine(waiting=waiting)])])
    assert problem is not None
    assert problem.stalled
    assert problem.message == "container engine of pod p: ErrImagePull: not found; check the image r/engine:1"


def test_engine_that_ends_again_and_again_stalls_and_one_end_does_not() -> None:
    once = find_problem([pod(containerStatuses=[engine(restarts=1, code=137)])])
    often = find_problem([pod(containerStatuses=[engine(restarts=3, code=137)])])
    assert once is not None
    assert often is not None
    assert (once.stalled, often.stalled) == (False, True)
    assert often.reason == "EngineFailed"
    assert often.crashed
    assert "ended 3 times, last with exit code 137 (OOMKilled)" in often.message


def test_worst_problem_is_told_first() -> None:
    unschedulable = pod("a", conditions=[{"type": "PodScheduled", "status": "False", "message": "m"}])
    broken = pod("b", containerStatuses=[engine(waiting={"reason": "InvalidImageName"})])
    problem = find_problem([unschedulable, broken])
    assert problem is not None
    assert problem.pod == "b"


def test_going_and_ended_pods_do_not_count() -> None:
    going = pod()
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not is_live(going)
    assert not is_live(pod(phase="Failed"))
    assert is_live(pod(phase="Running"))


def fetching(*, state: dict[str, Any] | None = None, reason: str = "SourceForbidden", ended: bool = True) -> Any:
    """Return a pod whose model is being fetched, after a failed try."""
    message = json.dumps({"outcome": "Retry", "reason": reason, "message": "spec.model.source.uri x: no"})
    last = {"terminated": {"exitCode": 1, "message": message, "finishedAt": TIME}} if ended else {}
    status = {"name": "fetch-model", "restartCount": 1, "state": state or {}, "lastState": last}
    return pod(initContainerStatuses=[status], startTime="2026-01-01T00:00:00Z")


def test_failed_fetch_speaks_in_its_own_words() -> None:
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    problem = find_problem([fetching(state=waiting)])
    assert problem is not None
    assert (problem.reason, problem.stalled, problem.crashed) == ("SourceForbidden", True, False)
    assert problem.message.startswith("spec.model.source.uri x: no")
    unreachable = find_problem([fetching(state=waiting, reason="SourceUnreachable")])
    assert unreachable is not None
    assert not unreachable.stalled


def test_fetch_that_is_tried_again_is_no_problem_yet() -> None:
    again = fetching(state={"running": {"startedAt": TIME}})
    assert find_problem([again]) is None
    assert fetching_pod([again]) == "p"
    assert fetching_pod([pod()]) is None


def test_fetching_does_not_count_as_starting() -> None:
    done = fetching(state={"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T05:00:00Z"}}, ended=False)
    assert str(started_at([done])) == "2026-01-01 05:00:00+00:00"
