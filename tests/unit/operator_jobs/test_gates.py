"""Whether a finished run counts."""

from typing import Any

import pytest
from whetstone_api.benchmark_result import RunComparison, RunResults
from whetstone_api.benchmarkrun import BenchmarkRunSpec
from whetstone_api.vocabulary import Reason
from whetstone_operator.controllers.gates import judge_gates, judge_validity

RESULTS = RunResults(tasks=20, trials=20, mean="0.8", strict_mean="0.76", coverage="0.95", void=1)


def make_spec(*gates: dict[str, Any], maximum_error_rate: str = "0.1") -> BenchmarkRunSpec:
    return BenchmarkRunSpec.model_validate(
        {
            "target": {"modelServerRef": {"name": "m"}},
            "suite": {"harbor": {"dataset": {"uri": "pvc://data/tasks"}}},
            "output": {"uri": "pvc://results/run"},
            "gates": list(gates),
            "maximumErrorRate": maximum_error_rate,
        }
    )


def comparison(low: str, *, verdict: str = "Better") -> RunComparison:
    interval = {"low": low, "high": "0.9"}
    return RunComparison.model_validate(
        {"baseline": "base", "verdict": verdict, "difference": "0.7", "interval": interval, "message": "other agent"}
    )


@pytest.mark.parametrize(
    ("gate", "low", "passes"),
    [
        ({"metric": "Mean", "minimum": "0.8"}, None, True),
        ({"metric": "Mean", "minimum": "0.81"}, None, False),
        ({"metric": "StrictMean", "minimum": "0.77"}, None, False),
        ({"metric": "Coverage", "minimum": "0.95"}, None, True),
        ({"metric": "Mean", "minimumImprovement": "0"}, "0.4", True),
        ({"metric": "Mean", "minimumImprovement": "0"}, "0", False),
        ({"metric": "Mean", "minimumImprovement": "0.5"}, "0.4", False),
        ({"metric": "Mean", "minimumImprovement": "0"}, None, False),
    ],
)
def test_gate_holds_or_not(gate: dict[str, str], low: str | None, passes: bool) -> None:
    against = comparison(low) if low else None
    judged = judge_gates(make_spec(gate), results=RESULTS, comparison=against, contaminated=[])
    assert judged.status == ("True" if passes else "False")
    assert judged.reason is (Reason.GATES_PASSED if passes else Reason.GATE_FAILED)


def test_failed_gate_is_named_with_both_figures() -> None:
    gate = {"metric": "Mean", "minimum": "0.9"}
    judged = judge_gates(make_spec(gate), results=RESULTS, comparison=None, contaminated=[])
    assert judged.message == "spec.gates[0]: Mean is 0.8, the gate asks for at least 0.9"


def test_runs_that_cannot_be_compared_never_pass_an_improvement() -> None:
    gate = {"metric": "Mean", "minimumImprovement": "0"}
    against = comparison("0.5", verdict="NotComparable")
    judged = judge_gates(make_spec(gate), results=RESULTS, comparison=against, contaminated=[])
    assert (judged.status, judged.reason) == ("False", Reason.NOT_COMPARABLE)
    assert "other agent" in judged.message


def test_training_on_the_tasks_passes_no_gate() -> None:
    gate = {"metric": "Mean", "minimum": "0"}
    judged = judge_gates(make_spec(gate), results=RESULTS, comparison=None, contaminated=["sort-1", "copy-2"])
    assert (judged.status, judged.reason) == ("False", Reason.CONTAMINATED)
    assert "sort-1, copy-2" in judged.message


def test_no_gates_is_no_evidence() -> None:
    judged = judge_gates(make_spec(), results=RESULTS, comparison=None, contaminated=[])
    assert (judged.status, judged.reason) == ("Unknown", Reason.NO_GATES)


@pytest.mark.parametrize(("allowed", "status"), [("0.05", "True"), ("0.04", "False"), ("0", "False")])
def test_validity_is_the_share_of_void_trials(allowed: str, status: str) -> None:
    assert judge_validity(RESULTS, allowed).status == status


def test_invalid_run_passes_no_gate() -> None:
    spec = make_spec({"metric": "Mean", "minimum": "0"}, maximum_error_rate="0")
    judged = judge_gates(spec, results=RESULTS, comparison=None, contaminated=[])
    assert (judged.status, judged.reason) == ("False", Reason.TOO_MANY_ERRORS)


def test_run_without_trials_is_not_valid() -> None:
    nothing = RunResults(tasks=0, trials=0, mean="0", strict_mean="0", coverage="0", void=0)
    assert judge_validity(nothing, "0.5").status == "False"
