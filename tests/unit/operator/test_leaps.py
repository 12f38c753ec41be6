"""A pod that always says a newer revision has the desired state written ever more rarely."""

from datetime import UTC, datetime

from support.hand_clock import HandClock
from whetstone_operator.kinds import MODEL_SERVER, Key
from whetstone_operator.runtime.leaps import CALM_SECONDS, LONGEST_PAUSE_SECONDS, Leaps

A, B = (Key(MODEL_SERVER.plural, "ns", name) for name in "ab")


def clock() -> HandClock:
    return HandClock(datetime(2026, 1, 1, tzinfo=UTC))


def test_first_leap_is_at_once_and_each_pause_twice_the_one_before() -> None:
    hand, pauses = clock(), []
    leaps = Leaps(hand)
    for _ in range(10):
        assert leaps.take(A) == 0
        pauses.append(leaps.take(A))
        hand.go(seconds=pauses[-1] / 2)
        assert leaps.take(A) == pauses[-1] / 2
        hand.go(seconds=pauses[-1] / 2)
    assert pauses == [5, 10, 20, 40, 80, 160, 320, 600, 600, 600]


def test_servers_do_not_wait_for_each_other_and_one_made_anew_not_for_its_namesake() -> None:
    leaps = Leaps(clock())
    assert (leaps.take(A), leaps.take(B)) == (0, 0)
    leaps.forget(A)
    assert leaps.take(A) == 0
    assert leaps.take(B) > 0


def test_who_has_been_calm_for_long_leaps_at_once_and_begins_with_the_shortest_pause() -> None:
    hand = clock()
    leaps = Leaps(hand)
    for _ in range(8):
        leaps.take(A)
        hand.go(seconds=LONGEST_PAUSE_SECONDS)
    hand.go(seconds=CALM_SECONDS)
    assert (leaps.take(A), leaps.take(A)) == (0, 5)


def test_clock_that_jumps_changes_no_pause() -> None:
    hand = clock()
    leaps = Leaps(hand)
    leaps.take(A)
    hand.jump(days=-1)
    assert leaps.take(A) == 5
    hand.jump(days=2)
    assert leaps.take(A) == 5
