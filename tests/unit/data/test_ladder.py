"""Each conversation stands on one rung of the ladder of tool use."""

from typing import Any

import pytest
from support.data_rows import call, called, said
from whetstone_artifacts.data.formats import to_messages
from whetstone_artifacts.data.ladder import Rung, rung_of

ASKED = said("user", "Find the owner of /srv/data")
DONE = said("assistant", "done")


@pytest.mark.parametrize(
    ("messages", "rung"),
    [
        ([ASKED, DONE], Rung.NONE),
        ([ASKED, called(call(path="/srv/data")), said("tool", "root"), DONE], Rung.SINGLE),
        ([ASKED, called(call(path="/a"), call(path="/b")), said("tool", "x"), said("tool", "y"), DONE], Rung.PARALLEL),
        ([ASKED, called(call(path="/srv/data")), said("tool", "u1042"), called(call("id", user="u1042"))], Rung.NESTED),
        ([ASKED, called(call()), said("tool", '{"n": 4711}'), called(call("get", ids=[{"n": 4711}]))], Rung.NESTED),
        # The value was known from the question, or is too short to be known again.
        ([ASKED, called(call()), said("tool", "/srv/data"), called(call(path="/srv/data"))], Rung.SEQUENTIAL),
        ([ASKED, called(call()), said("tool", "a 7 True"), called(call(n=7, deep=True, x="a"))], Rung.SEQUENTIAL),
        ([ASKED, called(call()), said("tool", "x"), DONE, said("user", "And now?"), DONE], Rung.MULTI_TURN),
        ([ASKED, DONE, said("user", "Go on"), called(call()), said("tool", "x"), DONE], Rung.SINGLE),
    ],
)
def test_rung(messages: list[dict[str, Any]], rung: Rung) -> None:
    assert rung_of(to_messages({"messages": messages})) == rung
