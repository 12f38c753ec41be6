"""Advice follows what the rows look like."""

from whetstone_trainer.advice import Nature, advise


def test_few_rows_are_compared_with_what_is_usual_for_their_kind() -> None:
    (advice,) = advise(Nature(rows=20, calling=15, named=20), truncated=0)
    assert advice == "20 rows are few: below 200 little is learned; usual are for tool calls 500 to 1000"
    (advice,) = advise(Nature(rows=600, stepwise=400, calling=600, named=600), truncated=0)
    assert advice == "600 rows are few for work in several steps (1000 to 5000 rows)"
    (advice,) = advise(Nature(rows=600, named=600), truncated=0)
    assert advice == "600 rows are few for the knowledge of a field (2000 to 10000 rows)"


def test_enough_rows_that_name_their_tasks_need_no_advice() -> None:
    assert advise(Nature(rows=5000, stepwise=5000, named=1), truncated=0) == []


def test_rows_without_tasks_and_ends_are_pointed_out() -> None:
    first, second = advise(Nature(rows=5000, stepwise=5000), truncated=7)
    assert "`task`" in first
    assert second.startswith("7 rows lost their end")


def test_advice_fits_the_status() -> None:
    assert max(map(len, advise(Nature(rows=1), truncated=1))) <= 256
