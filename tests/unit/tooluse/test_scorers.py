"""Answers are compared by rule, and saying that there is none to be had is the right answer where that is so."""

import pytest
from unit.tooluse.conftest import instance
from whetstone_agent.tooluse.instances import check_instances
from whetstone_agent.tooluse.scorers import UNABLE, ScorerName, declines, exact, normalized, right


@pytest.mark.parametrize(
    ("given", "accepted", "same"),
    [
        ("The Harbour team.", "harbour team", True),
        ("1,200.0", "1200", True),
        ("+5", "5", True),
        ("1.5", "15", False),
        ("-5", "5", False),
        ("ada@fern.example", "Ada@fern.example", True),
        ("ada@fern.example.", "ada@fern.example", True),
        ("“Harbour”", "Harbour", True),
        ("Harbour or Meadow", "Harbour", False),
        ("", "Harbour", False),
        ("", "The", False),
        ("The", "the", False),
        ("2026-03-01", "2026-03-01", True),
    ],
)
def test_normalized_looks_at_words_and_values(given: str, accepted: str, same: bool) -> None:
    assert normalized(given, accepted) is same


def test_exact_looks_at_every_character() -> None:
    assert exact(" Harbour\n", "Harbour")
    assert not exact("harbour", "Harbour")


@pytest.mark.parametrize(
    "answer",
    [
        UNABLE,
        "I can't find that without the documents.",
        "I am unable to access the employee records.",
        "I do not have access to the handbook.",
        "No tool is available for this.",
        "I am not allowed to search the handbook.",
        "I couldn't determine it.",
        "I could not find it.",
    ],
)
def test_a_decline_is_recognised(answer: str) -> None:
    assert declines(answer)


@pytest.mark.parametrize("answer", ["", "30", "Employees cannot carry over days.", "Notes are not kept."])
def test_other_replies_are_no_declines(answer: str) -> None:
    assert not declines(answer)


def test_what_is_right_depends_on_the_tools_that_are_there() -> None:
    (there,) = check_instances([instance()], "f")
    (missing,) = check_instances([instance(toolAvailability="only_rag")], "f")
    assert [right(there, text, ScorerName.NORMALIZED) for text in ("Ada@fern.example", UNABLE)] == [True, False]
    assert [right(missing, text, ScorerName.NORMALIZED) for text in ("ada@fern.example", UNABLE)] == [False, True]


def test_the_scorer_is_the_one_that_is_asked_for() -> None:
    (one,) = check_instances([instance()], "f")
    assert right(one, "ADA@fern.example", ScorerName.NORMALIZED)
    assert not right(one, "ADA@fern.example", ScorerName.EXACT)
