"""Agreement of two raters, against statsmodels."""

import random

import numpy as np
import pytest
from statsmodels.stats.inter_rater import cohens_kappa as independent
from whetstone_artifacts.agreement import agreement, cohens_kappa


@pytest.mark.parametrize("seed", range(20))
def test_kappa_is_that_of_statsmodels(seed: int) -> None:
    dice = random.Random(seed)
    size = dice.choice([2, 5])
    pairs = [
        (one, one if dice.random() < 0.6 else dice.randrange(size))
        for one in (dice.randrange(size) for _ in range(dice.randrange(3, 60)))
    ]
    table = np.zeros((size, size))
    for one, other in pairs:
        table[one, other] += 1
    ours = cohens_kappa(pairs)
    theirs = independent(table, return_results=False)
    assert ours is None if np.isnan(theirs) else ours == pytest.approx(float(theirs))
    assert agreement(pairs) == pytest.approx(float(np.trace(table) / table.sum()))


def test_a_rater_who_always_says_yes_agrees_no_more_than_chance() -> None:
    pairs = [(True, True)] * 9 + [(True, False)]
    assert (agreement(pairs), cohens_kappa(pairs)) == (0.9, 0.0)


def test_where_both_always_say_the_same_there_is_no_kappa() -> None:
    assert cohens_kappa([(True, True)] * 5) is None
    assert cohens_kappa([]) is agreement([]) is None
