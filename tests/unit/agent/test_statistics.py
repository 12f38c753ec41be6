"""The intervals behave at the ends, on small suites, and cover what they say they cover."""

import math
import random

import pytest
from whetstone_agent.statistics import compare_paired, difference_interval, mean_interval


def test_mean_of_all_zeros_has_an_interval_that_is_no_point() -> None:
    interval = mean_interval([0.0] * 20)
    assert interval is not None
    assert interval.low == 0
    assert interval.high == pytest.approx(0.161, abs=0.001)  # Wilson (1927): z² / (n + z²)


def test_mean_interval_is_symmetric_in_success_and_failure() -> None:
    some, rest = mean_interval([1.0] * 3 + [0.0] * 9), mean_interval([0.0] * 3 + [1.0] * 9)
    assert some is not None
    assert rest is not None
    assert some.low == pytest.approx(1 - rest.high)
    assert some.high == pytest.approx(1 - rest.low)


def test_rewards_outside_zero_and_one_get_students_interval() -> None:
    interval = mean_interval([10.0, 12.0, 14.0])
    assert interval is not None
    assert interval.low == pytest.approx(12 - 4.3027 * 2 / math.sqrt(3), abs=1e-3)


def test_no_scores_have_no_interval() -> None:
    assert mean_interval([]) is None
    assert compare_paired([], []) is None


@pytest.mark.parametrize("count", [8, 12, 20])
def test_all_ones_against_all_zeros_is_better_and_not_certain(count: int) -> None:
    paired = compare_paired([1.0] * count, [0.0] * count)
    assert paired is not None
    assert paired.difference == 1
    assert paired.interval.high == 1
    assert 0.15 < paired.interval.low < 0.9
    assert (paired.wins, paired.losses, paired.ties) == (count, 0, 0)


@pytest.mark.parametrize("count", [8, 12, 20])
def test_equal_runs_leave_room_on_both_sides(count: int) -> None:
    paired = compare_paired([0.0] * count, [0.0] * count)
    assert paired is not None
    assert paired.interval.low == pytest.approx(-paired.interval.high)
    assert paired.interval.high > 0.1
    assert not paired.interval.excludes(0.0)


def test_swapping_the_runs_turns_the_interval_round() -> None:
    rng = random.Random(5)
    for _ in range(50):
        here = [rng.choice((0.0, 0.5, 1.0)) for _ in range(15)]
        there = [rng.choice((0.0, 0.5, 1.0)) for _ in range(15)]
        forth, back = compare_paired(here, there), compare_paired(there, here)
        assert forth is not None
        assert back is not None
        assert forth.interval.low == pytest.approx(-back.interval.high, abs=1e-6)
        assert forth.interval.high == pytest.approx(-back.interval.low, abs=1e-6)
        assert forth.interval.low <= forth.difference <= forth.interval.high


@pytest.mark.parametrize("count", [8, 12, 20])
def test_no_claim_where_the_exact_sign_test_makes_none(count: int) -> None:
    from scipy.stats import binomtest

    for wins in range(count + 1):
        for losses in range(count + 1 - wins):
            if wins + losses == 0:
                continue
            interval = difference_interval(wins, losses, count=count)
            chance = binomtest(wins, wins + losses).pvalue
            assert chance < 0.05 or not interval.excludes(0.0), (wins, losses, interval)
            assert chance > 0.045 or interval.excludes(0.0), (wins, losses, interval)


def test_fewer_than_six_tasks_can_show_nothing() -> None:
    few, enough = compare_paired([1.0] * 5, [0.0] * 5), compare_paired([1.0] * 8, [0.0] * 8)
    assert few is not None
    assert enough is not None
    assert few.minimum_detectable is None
    assert not few.interval.excludes(0.0)
    assert enough.minimum_detectable == 6 / 8


@pytest.mark.parametrize(("gain", "loss"), [(0.0, 0.0), (0.2, 0.2), (0.5, 0.0), (0.9, 0.05), (0.3, 0.1)])
@pytest.mark.parametrize("count", [8, 20])
def test_the_interval_covers_the_true_difference(gain: float, loss: float, count: int) -> None:
    rng = random.Random(f"{gain} {loss} {count}")
    seen: dict[tuple[int, int], bool] = {}
    hits, rounds = 0, 4000
    for _ in range(rounds):
        draws = [rng.random() for _ in range(count)]
        wins = sum(draw < gain for draw in draws)
        losses = sum(gain <= draw < gain + loss for draw in draws)
        if (wins, losses) not in seen:
            seen[wins, losses] = not difference_interval(wins, losses, count=count).excludes(gain - loss)
        hits += seen[wins, losses]
    assert hits / rounds >= 0.94


def test_partial_scores_cover_too() -> None:
    rng = random.Random(11)
    hits, rounds, count, attempts = 0, 400, 12, 4
    for _ in range(rounds):
        skill = [rng.random() for _ in range(count)]
        here = [sum(rng.random() < 0.5 + s / 2 for _ in range(attempts)) / attempts for s in skill]
        there = [sum(rng.random() < s / 2 for _ in range(attempts)) / attempts for s in skill]
        paired = compare_paired(here, there)
        assert paired is not None
        hits += not paired.interval.excludes(0.5)
    assert hits / rounds >= 0.94
