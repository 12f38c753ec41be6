"""The operator's time: the API server's dates, whatever this machine's clock shows."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from whetstone_operator.runtime.clock import ClusterClock

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


class Machine:
    """Its two clocks."""

    def __init__(self) -> None:
        self.wall, self.steady = NOW.timestamp(), 1000.0

    def clock(self) -> ClusterClock:
        return ClusterClock(wall=lambda: self.wall, steady=lambda: self.steady)


@pytest.mark.parametrize("hours", [-1, 1])
def test_jump_of_this_machines_clock_changes_nothing(hours: int) -> None:
    machine = Machine()
    clock = machine.clock()
    machine.wall += hours * 3600
    machine.steady += 5
    assert (clock.now(), clock.steady()) == (NOW + timedelta(seconds=5), 1005)


@pytest.mark.parametrize("hours", [-1, 1])
def test_dates_are_those_of_the_api_server(hours: int) -> None:
    machine, away = Machine(), timedelta(hours=hours)
    clock = machine.clock()
    clock.hear(format_datetime(NOW + away, usegmt=True))
    machine.steady += 7
    assert clock.now() == NOW + away + timedelta(seconds=7)
    assert clock.steady() == 1007


@pytest.mark.parametrize("date", [None, "", "soon", format_datetime(NOW + timedelta(seconds=9), usegmt=True)])
def test_small_differences_and_dates_that_are_none_change_nothing(date: str | None) -> None:
    clock = Machine().clock()
    clock.hear(date)
    assert clock.now() == NOW
