"""Who is woken by a change, and when a report counts."""

from datetime import datetime, timedelta

from unit.operator.objects import NOW
from whetstone_api.reports import ProgressReport
from whetstone_operator.children import owner_of
from whetstone_operator.kinds import Key
from whetstone_operator.runtime.progress import ProgressBoard
from whetstone_operator.runtime.references import ANY, References

SERVER = Key("modelservers", "ns", "server")
TRAIN = Key("loratrainingjobs", "ns", "train")
RUN = Key("benchmarkruns", "ns", "run")


class SetClock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.time = NOW

    def now(self) -> datetime:
        return self.time


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
    clock = SetClock()
    board = ProgressBoard(clock)
    train = ProgressReport(phase="Train", step=1)
    assert board.put(TRAIN, train) == 0
    clock.time += timedelta(seconds=10)
    assert board.put(TRAIN, train) == 20
    assert board.due(TRAIN, phase="Train", updated_at="2026-01-02T03:04:05Z") is None
    clock.time += timedelta(seconds=20)
    assert board.put(TRAIN, train) == 0
    assert board.due(TRAIN, phase="Train", updated_at="2026-01-02T03:04:05Z") is not None
    clock.time += timedelta(seconds=1)
    assert board.put(TRAIN, ProgressReport(phase="Verify")) == 0


def test_sidecars_change_is_always_told_at_once() -> None:
    board = ProgressBoard(SetClock())
    for _ in range(3):
        assert board.put(SERVER, ProgressReport(phase="Changed")) == 0
