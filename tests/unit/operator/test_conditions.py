"""How the outcome of the steps becomes conditions."""

from datetime import timedelta
from typing import Any

import pytest
from unit.operator.objects import NOW
from whetstone_api.vocabulary import ConditionType, Reason
from whetstone_operator.runtime.clock import to_rfc3339
from whetstone_operator.runtime.conditions import Conditions, Finished, settle
from whetstone_operator.runtime.outcome import Interrupt, Paused, Retry, Stalled, Waiting


def settled(
    outcome: Finished | Interrupt, *, run_to_end: bool = False, observed: list[dict[str, Any]] | None = None
) -> dict[str, str]:
    conditions = Conditions(observed or [], generation=7, now=NOW)
    settle(conditions, outcome, run_to_end=run_to_end)
    return {item["type"]: item["status"] for item in conditions.to_list()}


@pytest.mark.parametrize(
    ("outcome", "live", "run_to_end"),
    [
        (Finished(), {"Ready": "True"}, {"Ready": "True", "Complete": "True"}),
        (
            Waiting(Reason.PROGRESSING, "m"),
            {"Ready": "False", "Reconciling": "True"},
            {"Ready": "False", "Reconciling": "True"},
        ),
        (
            Retry(Reason.INTERNAL_ERROR, "m"),
            {"Ready": "False", "Reconciling": "True"},
            {"Ready": "False", "Reconciling": "True"},
        ),
        (Paused(Reason.SUSPENDED, "m"), {"Ready": "False"}, {"Ready": "False", "Suspended": "True"}),
        (
            Stalled(Reason.INVALID_SPEC, "m"),
            {"Ready": "False", "Stalled": "True"},
            {"Ready": "False", "Stalled": "True", "Failed": "True"},
        ),
    ],
)
def test_outcome_becomes_summary_conditions(
    outcome: Finished | Interrupt, live: dict[str, str], run_to_end: dict[str, str]
) -> None:
    assert settled(outcome) == live
    assert settled(outcome, run_to_end=True) == run_to_end


def test_hiccup_does_not_take_ready_from_a_serving_server() -> None:
    conditions = Conditions([], generation=7, now=NOW)
    settle(conditions, Finished(Reason.SERVING, "1 of 1"), run_to_end=False)
    after = settled(Retry(Reason.INTERNAL_ERROR, "503"), observed=conditions.to_list())
    assert after == {"Ready": "True", "Reconciling": "True"}


def test_transition_time_changes_only_with_the_status() -> None:
    first = Conditions([], generation=1, now=NOW)
    first.set(ConditionType.READY, False, reason=Reason.PROGRESSING, message="a")
    later = NOW + timedelta(minutes=5)
    same = Conditions(first.to_list(), generation=2, now=later)
    same.set(ConditionType.READY, False, reason=Reason.CLAIM_NOT_FOUND, message="b")
    item = same.to_list()[0]
    assert (item["lastTransitionTime"], item["reason"]) == (to_rfc3339(NOW), "ClaimNotFound")
    assert item["observedGeneration"] == 2
    other = Conditions(first.to_list(), generation=2, now=later)
    other.set(ConditionType.READY, True, reason=Reason.SERVING, message="c")
    assert other.to_list()[0]["lastTransitionTime"] == to_rfc3339(later)


def test_only_changed_status_or_reason_is_a_transition() -> None:
    first = Conditions([], generation=1, now=NOW)
    first.set(ConditionType.READY, False, reason=Reason.PROGRESSING, message="1 of 2")
    second = Conditions(first.to_list(), generation=1, now=NOW)
    second.set(ConditionType.READY, False, reason=Reason.PROGRESSING, message="2 of 3")
    assert list(second.transitions()) == []
    second.set(ConditionType.READY, True, reason=Reason.SERVING, message="all")
    assert [item["reason"] for item in second.transitions()] == ["Serving"]
