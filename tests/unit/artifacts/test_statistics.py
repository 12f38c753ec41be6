"""The intervals behave at the ends, on small suites, and cover what they say they cover."""

import itertools
import math
import random
from collections.abc import Callable

import pytest
from whetstone_artifacts.statistics import compare_paired, difference_interval, mean_interval, pass_at_k


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


def test_mean_interval_of_zeros_and_ones_is_wilsons_away_from_the_edges() -> None:
    from statsmodels.stats.proportion import proportion_confint

    for count in (8, 20, 60):
        for solved in range(4, count - 3):
            interval = mean_interval([1.0] * solved + [0.0] * (count - solved))
            assert interval is not None
            expected = proportion_confint(solved, count, method="wilson")
            assert (interval.low, interval.high) == pytest.approx(expected, abs=1e-9)


def test_one_solved_task_has_the_poisson_end() -> None:
    interval = mean_interval([1.0] + [0.0] * 19)
    assert interval is not None
    assert interval.low == pytest.approx(-math.log(0.95) / 20)  # P(none) = 0.95 at this rate


def test_many_tasks_have_the_interval_of_cluster_robust_errors() -> None:
    import numpy as np
    import statsmodels.api as sm

    rng = np.random.default_rng(7)
    tasks, attempts = 400, 5
    rewards = rng.binomial(1, rng.beta(2, 2, tasks)[:, None], (tasks, attempts)).astype(float)
    groups = np.repeat(np.arange(tasks), attempts)
    fit = sm.OLS(rewards.ravel(), np.ones(tasks * attempts)).fit(cov_type="cluster", cov_kwds={"groups": groups})
    low, high = fit.conf_int()[0]
    interval = mean_interval(list(rewards.mean(axis=1)), attempts=attempts)
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=0.002)


def beta(a: float, b: float) -> Callable[[random.Random], float]:
    return lambda rng: rng.betavariate(a, b)


SIZES = list(itertools.product((8, 20, 60), (1, 3, 8)))
"""Tasks and attempts."""
POPULATIONS = {
    0.5: (beta(1, 1), beta(0.5, 0.5), beta(5, 5)),
    0.9: (beta(9, 1), beta(1.8, 0.2)),
    0.2: (beta(0.2, 0.8), beta(2, 8)),
}
"""How likely tasks are to be solved, by the mean: alike and spread out."""


def coverage(truth: float, draw: Callable[[random.Random], float], *, count: int, attempts: int, rounds: int) -> float:
    """Return how often the interval of the mean holds the truth."""
    rng, hits = random.Random(f"{truth} {count} {attempts}"), 0
    for _ in range(rounds):
        chances = [draw(rng) for _ in range(count)]
        scores = [sum(rng.random() < p for _ in range(attempts)) / attempts for p in chances]
        interval = mean_interval(scores, attempts=attempts)
        assert interval is not None
        hits += not interval.excludes(truth)
    return hits / rounds


@pytest.mark.parametrize(("count", "attempts"), SIZES)
def test_the_means_interval_covers_what_it_says(count: int, attempts: int) -> None:
    shares = [
        coverage(truth, draw, count=count, attempts=attempts, rounds=160)
        for truth, draws in POPULATIONS.items()
        for draw in draws
    ]
    assert 0.93 <= math.fsum(shares) / len(shares) <= 0.97, shares


@pytest.mark.parametrize("truth", [0.02, 0.98])
@pytest.mark.parametrize(("count", "attempts"), [(8, 1), (20, 1), (20, 3), (60, 8)])
def test_the_means_interval_covers_at_the_edges_too(count: int, attempts: int, truth: float) -> None:
    # Few successes come in steps, so that more than 97 % may be covered here; less never.
    assert coverage(truth, lambda _: truth, count=count, attempts=attempts, rounds=300) >= 0.93


@pytest.mark.parametrize(("count", "attempts"), SIZES)
def test_equal_models_are_seldom_called_different(count: int, attempts: int) -> None:
    rng = random.Random(f"{count} {attempts}")
    rounds, wrong = 300, 0
    draws = [beta(1, 1), beta(0.2, 0.8), beta(9, 1)]
    for number in range(rounds):
        here_chances = [draws[number % 3](rng) for _ in range(count)]
        # Every other time the two differ by task, and are equal on average only.
        there_chances = here_chances if number % 2 else [draws[number % 3](rng) for _ in range(count)]
        here, there = (
            [sum(rng.random() < p for _ in range(attempts)) / attempts for p in chances]
            for chances in (here_chances, there_chances)
        )
        paired = compare_paired(here, there, attempts=attempts)
        assert paired is not None
        wrong += paired.interval.excludes(0.0)
    assert wrong / rounds <= 0.05


@pytest.mark.parametrize(("count", "attempts"), [(12, 4), (20, 8), (40, 3)])
def test_the_difference_of_partial_scores_is_covered(count: int, attempts: int) -> None:
    rng = random.Random(11)
    hits, rounds = 0, 300
    for _ in range(rounds):
        skill = [rng.random() for _ in range(count)]
        here = [sum(rng.random() < 0.5 + s / 2 for _ in range(attempts)) / attempts for s in skill]
        there = [sum(rng.random() < s / 2 for _ in range(attempts)) / attempts for s in skill]
        paired = compare_paired(here, there, attempts=attempts)
        assert paired is not None
        hits += not paired.interval.excludes(0.5)
    assert hits / rounds >= 0.94


def test_more_attempts_narrow_both_intervals_but_never_below_independent_trials() -> None:
    scores, others = [0.4, 0.6] * 10, [0.2, 0.4] * 10
    wide, narrow = mean_interval(scores, attempts=1), mean_interval(scores, attempts=5)
    independent = mean_interval([1.0] * 50 + [0.0] * 50)
    assert wide is not None
    assert narrow is not None
    assert independent is not None
    assert independent.high - independent.low - 1e-9 <= narrow.high - narrow.low < wide.high - wide.low
    one, five = compare_paired(scores, others, attempts=1), compare_paired(scores, others, attempts=5)
    assert one is not None
    assert five is not None
    assert not one.interval.excludes(0.0)
    assert five.interval.excludes(0.0)


def test_pass_at_k_is_the_share_of_draws_that_hold_a_solution() -> None:
    for attempts, solved, k in [(5, 2, 1), (5, 2, 3), (6, 0, 2), (6, 6, 6), (10, 1, 5)]:
        draws = list(itertools.combinations([True] * solved + [False] * (attempts - solved), k))
        assert pass_at_k(attempts, solved, k) == pytest.approx(sum(map(any, draws)) / len(draws))
    with pytest.raises(ValueError, match="k must be 1 to 3"):
        pass_at_k(3, 1, 4)
