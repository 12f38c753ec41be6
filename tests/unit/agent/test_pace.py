"""When the server, and not the model, is to blame for a trial whose time ran out."""

import pytest
from whetstone_agent.agents.pace import Pace, Waiting


def usual(*, calls: int = 8, seconds: float = 2.0, tokens: int = 100) -> Pace:
    """A server that needs 20 ms for a token: 100 of them are slow after 9 s."""
    pace = Pace()
    for _ in range(calls):
        pace.add(seconds, tokens)
    return pace


def answered(waiting: Waiting, pace: Pace, *, seconds: float, tokens: int | None, most: int | None = None) -> None:
    waiting.end(waiting.begin(0.0, most), seconds, tokens=tokens, pace=pace)


def test_a_trial_whose_calls_took_their_usual_time_is_the_models_own() -> None:
    pace, waiting = usual(), Waiting()
    for _ in range(5):
        answered(waiting, pace, seconds=8.0, tokens=100)
    assert waiting.blames_server(100.0, 40.0, pace) is None


def test_a_reply_that_is_long_takes_long_and_blames_nobody() -> None:
    pace, waiting = usual(), Waiting()
    answered(waiting, pace, seconds=60.0, tokens=3000)
    assert waiting.blames_server(100.0, 60.0, pace) is None


def test_a_slow_answer_that_took_most_of_the_time_blames_the_server() -> None:
    pace, waiting = usual(), Waiting()
    answered(waiting, pace, seconds=39.0, tokens=100)
    assert waiting.blames_server(100.0, 61.0, pace) is None
    told = waiting.blames_server(100.0, 60.0, pace)
    assert told == "30 of 60 s were spent on calls that took more than 4 times as long as usual"


@pytest.mark.parametrize(("most", "blamed"), [(100, True), (1000, False), (None, False)])
def test_a_call_that_is_open_is_judged_by_the_longest_reply_that_it_may_get(most: int | None, blamed: bool) -> None:
    pace, waiting = usual(), Waiting()
    waiting.begin(0.0, most)
    assert (waiting.blames_server(60.0, 60.0, pace) is not None) is blamed


def test_a_call_that_was_given_up_still_counts() -> None:
    pace, waiting = usual(), Waiting()
    answered(waiting, pace, seconds=60.0, tokens=None, most=100)
    assert waiting.open_calls == {}
    assert waiting.blames_server(100.0, 60.0, pace) is not None
    assert pace.slow_after(100) == usual().slow_after(100), "it is no answer that says what is usual"


def test_nothing_is_usual_before_some_calls_were_answered() -> None:
    pace, waiting = usual(calls=7), Waiting()
    answered(waiting, pace, seconds=600.0, tokens=None, most=1)
    assert waiting.blames_server(600.0, 600.0, pace) is None


def test_a_server_that_is_slow_for_all_is_usual() -> None:
    pace, waiting = usual(seconds=60.0), Waiting()
    for _ in range(5):
        answered(waiting, pace, seconds=60.0, tokens=100)
    assert waiting.blames_server(300.0, 300.0, pace) is None
