"""Who is woken by a change, and when a report counts."""

from typing import Any, cast

import pytest
from support.hand_clock import HandClock
from unit.operator.objects import NOW
from whetstone_api.reports import ProgressReport
from whetstone_operator.children import owner_of
from whetstone_operator.http import Reporters
from whetstone_operator.kinds import Key
from whetstone_operator.kube import Kube, TokenIdentity
from whetstone_operator.runtime.clock import to_rfc3339
from whetstone_operator.runtime.progress import ProgressBoard
from whetstone_operator.runtime.references import ANY, References

SERVER = Key("modelservers", "ns", "server")
TRAIN = Key("loratrainingjobs", "ns", "train")
RUN = Key("benchmarkruns", "ns", "run")


class Reviews:
    """Stands in for the API server: one pod, which works for the training, and its token."""

    def __init__(self) -> None:
        self.asked = 0

    async def review_token(self, _: str) -> TokenIdentity:
        self.asked += 1
        return TokenIdentity(namespace="ns", service_account="a", pod_name="p", pod_uid="u")

    async def get(self, *_: Any) -> dict[str, Any]:
        return {"metadata": {"name": "p", "uid": "u", "labels": {"whetstone.dev/lora-training-job": "train"}}}


def test_change_wakes_those_that_refer_to_it() -> None:
    references = References()
    references.declare(SERVER, frozenset({TRAIN}))
    assert references.dependents(TRAIN) == {SERVER}
    assert references.dependents(Key("loratrainingjobs", "other", "train")) == set()
    references.declare(SERVER, frozenset())
    assert references.dependents(TRAIN) == set()


def test_reference_to_a_whole_kind_is_woken_by_each_of_its_objects() -> None:
    references = References()
    references.declare(SERVER, frozenset({Key("benchmarkruns", "ns", ANY)}))
    assert references.dependents(RUN) == {SERVER}
    assert references.dependents(TRAIN) == set()


def test_nothing_wakes_itself() -> None:
    references = References()
    references.declare(RUN, frozenset({Key("benchmarkruns", "ns", ANY)}))
    assert references.dependents(RUN) == set()


def test_owner_is_named_by_the_childs_label() -> None:
    assert owner_of({"whetstone.dev/model-server": "server"}, "ns") == SERVER
    assert owner_of({"app": "other"}, "ns") is None


def test_new_phase_is_told_at_once_and_progress_twice_a_minute() -> None:
    clock = HandClock(NOW)
    board = ProgressBoard(clock)
    train = ProgressReport(phase="Train", step=1)
    assert board.put(TRAIN, train) == 0
    clock.go(seconds=10)
    assert board.put(TRAIN, train) == 20
    assert board.due(TRAIN, phase="Train", updated_at="2026-01-02T03:04:05Z") is None
    clock.go(seconds=1)
    assert board.put(TRAIN, train) == 19
    clock.go(seconds=19)
    # Nothing more came: the last report is told all the same.
    assert board.due(TRAIN, phase="Train", updated_at="2026-01-02T03:04:05Z") is not None
    clock.go(seconds=1)
    assert board.put(TRAIN, train) == 29
    assert board.put(TRAIN, ProgressReport(phase="Verify")) == 0
    clock.go(seconds=45)
    assert board.put(TRAIN, ProgressReport(phase="Verify")) == 0


def test_sidecars_change_is_always_told_at_once() -> None:
    board = ProgressBoard(HandClock(NOW))
    for _ in range(3):
        assert board.put(SERVER, ProgressReport(phase="Changed")) == 0


@pytest.mark.parametrize("hours", [-1, 1])
def test_progress_goes_on_after_a_jump_of_the_clock(hours: int) -> None:
    clock = HandClock(NOW)
    board = ProgressBoard(clock)
    train = ProgressReport(phase="Train", step=1)
    board.put(TRAIN, train)
    written = to_rfc3339(clock.now())
    clock.jump(hours=hours)
    clock.go(seconds=10)
    assert board.put(TRAIN, train) == 20
    clock.go(seconds=20)
    due = board.due(TRAIN, phase="Train", updated_at=written)
    assert due is not None
    written = to_rfc3339(due.at)
    clock.go(seconds=1)
    board.put(TRAIN, train)
    assert board.due(TRAIN, phase="Train", updated_at=written) is None


async def test_known_token_is_asked_about_again_in_time_though_the_clock_was_set_back() -> None:
    clock, reviews = HandClock(NOW), Reviews()
    reporters = Reporters(cast("Kube", reviews), clock=clock)
    assert await reporters.owner("token") == TRAIN
    clock.jump(hours=-1)
    assert await reporters.owner("token") == TRAIN
    assert reviews.asked == 1
    clock.go(minutes=6)
    await reporters.owner("token")
    assert reviews.asked == 2
