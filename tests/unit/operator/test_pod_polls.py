"""When pods that are not settled are asked again."""

from datetime import timedelta
from typing import Any

from unit.operator.objects import NOW
from whetstone_api.pod_state import PodState
from whetstone_operator.controllers.adapters import PodView
from whetstone_operator.controllers.pod_polls import LONGEST_SECONDS, SHORTEST_SECONDS, next_look
from whetstone_operator.runtime.clock import to_rfc3339

OLD = int((NOW - timedelta(days=1)).timestamp())


def pod(*, age: float = 0, address: str | None = "10.0.0.1") -> dict[str, Any]:
    started = to_rfc3339(NOW - timedelta(seconds=age))
    return {"metadata": {"name": "p"}, "status": {"startTime": started, **({"podIP": address} if address else {})}}


def view(state: PodState | None = None) -> PodView:
    return PodView(name="p", ready=True, state=state)


def look(pods: list[dict[str, Any]], views: list[PodView], *, revision: int = OLD) -> float | None:
    return next_look(pods, views, revision=revision, now=NOW)


def test_settled_pods_and_pods_without_an_address_are_not_asked_again() -> None:
    settled = view(PodState(revision=OLD, settled=True, engine_healthy=True, open=True))
    assert look([], []) is None
    assert look([pod(), pod(address=None)], [settled, view()]) is None


def test_a_young_pod_is_asked_again_soon_and_one_that_hangs_seldom() -> None:
    assert look([pod(age=10)], [view()]) == SHORTEST_SECONDS
    assert look([pod(age=120)], [view()]) == 12
    assert look([pod(age=7200)], [view()]) == LONGEST_SECONDS
    assert look([pod(age=7200), pod(age=10)], [view(), view()]) == SHORTEST_SECONDS


def test_an_old_pod_with_a_new_wish_is_asked_again_soon() -> None:
    busy = view(PodState(revision=OLD, settled=True, engine_healthy=True, open=True))
    assert look([pod(age=7200)], [busy], revision=int(NOW.timestamp()) - 10) == SHORTEST_SECONDS
