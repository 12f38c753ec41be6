"""What went wrong last in a trial, by its trajectory, and the same over several runs."""

from dataclasses import replace

import pytest
from whetstone_api.run_artifact import TrialScore
from whetstone_artifacts.report.failures import Pattern, grouped, pattern_of, shared, verifier_line
from whetstone_artifacts.report.trials import Step, TrialDetail
from whetstone_artifacts.report.untrusted import NOTHING, Shown, shown


def ran(*turns: tuple[str, str]) -> list[Step]:
    return [
        Step(
            number=number,
            source="agent",
            message=NOTHING,
            reasoning=NOTHING,
            commands=[shown(command)] if command else [],
            outputs=[shown(output)] if output else [],
        )
        for number, (command, output) in enumerate(turns, start=1)
    ]


NOT_CONTENT = "the last command succeeded, the verifier was not content"
FINE = "Exit code: 0\nOutput:\nok"


@pytest.mark.parametrize(
    ("end", "turns", "verdict", "pattern"),
    [
        ("Finished", [], "", "no trajectory"),
        ("Finished", [("", "")], "", "no command was run"),
        ("Finished", [("ls", ""), ("ls", ""), ("ls", "")], "", "ran the same command at least 3 times in a row"),
        ("Repeated", [("ls", FINE), ("ls", FINE)], "", "ran the same command at least 3 times in a row"),
        ("MaxTurns", [("ls", FINE), ("pwd", FINE)], "", "ran out of turns"),
        (
            "Finished",
            [("ls", "Exit code: 2\nOutput:\nls: cannot access '/x'")],
            "",
            "exit code 2: ls: cannot access '…'",
        ),
        ("Finished", [("", FINE), (" ", FINE), (" ", FINE), (" ", FINE)], "", NOT_CONTENT),
        ("Finished", [("ls", "Exit code: 1\nOutput:\nls: cannot go"), ("pwd", FINE)], "", NOT_CONTENT),
        ("Finished", [("make", "Exit code: 2\nOutput:\nerror: one\nfatal: two\ndone")], "", "exit code 2: fatal: two"),
        ("Finished", [("make", "Exit code: 2\nOutput:\nfirst\nlast words")], "", "exit code 2: last words"),
        ("Finished", [("make", "Exit code: 2\nOutput:\n")], "", "exit code 2"),
        ("Finished", [("ls", FINE)], "", NOT_CONTENT),
        (
            "Finished",
            [("ls", FINE)],
            "collected 2 items\nE   assert 17 == 42\nFAILED tests/test_a.py::test_b",
            f"{NOT_CONTENT}: E assert N == N",
        ),
        (
            "Finished",
            [("ls", FINE)],
            "all is as it should be",
            NOT_CONTENT,
        ),
    ],
)
def test_a_failure_is_named_by_what_happened_last(
    end: str, turns: list[tuple[str, str]], verdict: str, pattern: str
) -> None:
    detail = TrialDetail(folder="f", steps=ran(*turns), verdict=shown(verdict))
    assert pattern_of(TrialScore(trial="t", reward=0.0, end=end), detail) == pattern


def test_an_exception_says_more_than_the_trajectory() -> None:
    detail = TrialDetail(folder="f", steps=ran(("ls", FINE)))
    assert pattern_of(TrialScore(trial="t", reward=0.0, error="AgentTimeoutError"), detail) == "AgentTimeoutError"
    assert pattern_of(TrialScore(trial="t", reward=0.0), None) == "no folder of the trial"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("ok 1 - a\nnot ok 2 - file /app/x is missing", "not ok N - file PATH is missing"),
        ("Expected: 'a', got: 'b'", "Expected: '…', got: '…'"),
        ("5 passed", ""),
    ],
)
def test_the_first_line_in_which_a_verifier_complains_is_taken(text: str, line: str) -> None:
    assert verifier_line(shown(text)) == line


def test_what_a_cut_left_of_the_end_counts() -> None:
    told = Shown(head="Exit code: 1\nOutput:\nmany lines", tail="fatal: no room", cut=9000)
    detail = TrialDetail(folder="f", steps=[replace(ran(("make", FINE))[0], outputs=[told])])
    assert pattern_of(TrialScore(trial="t", reward=0.0), detail) == "exit code 1: fatal: no room"
    assert verifier_line(Shown(head="2 tests", tail="FAILED test_a", cut=9000)) == "FAILED test_a"


def test_a_trial_too_long_to_be_looked_at_is_no_other_failure() -> None:
    detail = TrialDetail(folder="f", left_out=7, steps=ran(("ls", FINE)))
    assert pattern_of(TrialScore(trial="t", reward=0.0), detail) == "too long to be looked at"


def test_long_lines_are_cut() -> None:
    assert verifier_line(shown("FAILED " + "word " * 100)) == ("FAILED " + "word " * 100)[:160]


def test_patterns_of_a_run_stand_with_the_most_frequent_first() -> None:
    found = grouped([("a", "1", "x"), ("b", "2", "y"), ("b", "3", "z")])
    assert [pattern.what for pattern in found] == ["b", "a"]


def test_patterns_of_several_runs_stand_side_by_side_with_the_most_frequent_first() -> None:
    one = grouped([("a", "r1-1", "x"), ("b", "r1-2", "y")])
    two = grouped([("b", "r2-1", "x"), ("b", "r2-2", "y"), ("c", "r2-3", "z")])
    found = shared([one, two])
    assert [(pattern.what, pattern.total) for pattern in found] == [("b", 3), ("a", 1), ("c", 1)]
    assert found[0].runs == [
        Pattern(what="b", trials=[("r1-2", "y")]),
        Pattern(what="b", trials=[("r2-1", "x"), ("r2-2", "y")]),
    ]
    assert found[1].runs[1].trials == []
