"""Tests wait longer on a machine that is slow, also where it has become so only since it was measured."""

import time

import pytest
from support import waiting
from support.waiting import eventually, eventually_none

LATER = 0.1


@pytest.fixture
def factors(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What is measured when a deadline has passed, one after the other; 1 at first."""
    coming: list[float] = []
    monkeypatch.setattr(waiting, "machine_factor", lambda: 1.0)
    monkeypatch.setattr(waiting, "_measured_factor", lambda: coming.pop(0))
    return coming


def test_a_machine_that_became_slower_gets_more_time(factors: list[float]) -> None:
    factors += [1e6]
    begin = time.monotonic()
    assert eventually(lambda: time.monotonic() > begin + LATER, what="later", seconds=LATER / 4)
    assert factors == []


def test_on_one_that_did_not_the_wait_ends_with_what_was_seen_last(factors: list[float]) -> None:
    factors += [1.0]
    with pytest.raises(AssertionError, match="not within 0 s: never; last answer 0"):
        eventually(lambda: 0, what="never", seconds=LATER / 4)


def test_what_does_not_go_is_named(factors: list[float]) -> None:
    left = ["first", "second"]
    eventually_none(lambda: left and [left.pop()], what="all are gone")
    assert left == []
    factors += [1.0]
    with pytest.raises(AssertionError, match=r"not within 0 s: the first is gone; still there: \['first'\]"):
        eventually_none(lambda: ["first"], what="the first is gone", seconds=LATER / 4)
