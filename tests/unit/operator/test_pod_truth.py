"""What pods say of themselves while they are not ready."""

from typing import Any

import pytest
from unit.operator.objects import digest
from whetstone_api.pod_state import AdapterState, BaseState, PodState
from whetstone_operator.controllers.adapters import PodView
from whetstone_operator.controllers.pod_truth import find_obstacle, find_told

WRONG = BaseState(status="False", reason="Divergent", message="off by 3 nats")


def pod(name: str = "p", *, ready: bool = False, failed: str = "", **fields: Any) -> PodView:
    adapter = AdapterState(name="sql", served_name="sql--aaaaaaaa", digest=digest("a"), reason=failed, message="why")
    state = {"revision": 1, "settled": True, "engineHealthy": True, "open": False, "adapters": [adapter]}
    return PodView(name=name, ready=ready, state=PodState.model_validate({**state, **fields}))


@pytest.mark.parametrize(
    "fine",
    [
        pod(ready=True, base=WRONG),
        pod(open=True, base=WRONG),
        pod(settled=False),
        PodView(name="p", ready=False, state=None),
    ],
    ids=["ready", "open", "under way", "silent"],
)
def test_pod_that_only_needs_time_has_nothing_to_say(fine: PodView) -> None:
    assert find_told([fine]) is None


def test_wrong_base_is_for_the_user_to_mend_and_comes_first() -> None:
    problem = find_told([pod("a", failed="RankTooHigh"), pod("b", base=WRONG)])
    assert problem is not None
    assert (problem.pod, problem.reason, problem.stalled) == ("b", "BaseDivergent", True)
    assert problem.message == "pod b gets no clients: off by 3 nats"


def test_engine_that_hangs_is_named_and_needs_no_user() -> None:
    problem = find_told([pod(engineHealthy=False, engineStalled=True, base=WRONG)])
    assert problem is not None
    assert (problem.reason, problem.stalled) == ("EngineStalled", False)
    assert "pod p takes requests and generates nothing" in problem.message


def test_required_adapter_that_failed_is_named() -> None:
    problem = find_told([pod(failed="RankTooHigh")])
    assert problem is not None
    assert (problem.reason, problem.stalled) == ("RankTooHigh", False)
    assert problem.message == "pod p waits for the required adapter sql: why"


def restarted(restarts: int) -> dict[str, Any]:
    last = {"terminated": {"exitCode": 137, "reason": "Error"}}
    engine = {"name": "engine", "restartCount": restarts, "state": {"running": {}}, "lastState": last}
    return {"metadata": {"name": "p"}, "status": {"containerStatuses": [engine]}}


@pytest.mark.parametrize(
    ("restarts", "view", "reason"),
    [
        (1, pod(base=WRONG), "BaseDivergent"),
        (9, pod(base=WRONG), "BaseDivergent"),
        (1, pod(engineHealthy=False, engineStalled=True), "EngineStalled"),
        (9, pod(engineHealthy=False, engineStalled=True), "EngineFailed"),
        (1, pod(engineHealthy=False), "EngineFailed"),
    ],
    ids=["wrong base", "wrong base of a crashing engine", "hang", "hang of a crashing engine", "crash"],
)
def test_what_a_pod_says_now_comes_before_what_its_engine_died_of(restarts: int, view: PodView, reason: str) -> None:
    problem = find_obstacle([restarted(restarts)], [view])
    assert problem is not None
    assert problem.reason == reason


def test_pods_without_a_problem_have_no_obstacle() -> None:
    assert find_obstacle([], [pod(ready=True)]) is None
