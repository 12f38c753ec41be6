"""Whether a finished run counts."""

from typing import Any

import pytest
from whetstone_api.benchmark_result import RunComparison, RunResults
from whetstone_api.benchmarkrun import BenchmarkRunSpec
from whetstone_api.vocabulary import Reason
from whetstone_operator.controllers.gates import judge_gates, judge_validity

RESULTS = RunResults.model_validate(
    {
        "tasks": 20,
        "trials": 20,
        "mean": "0.8",
        "strictMean": "0.76",
        "interval": {"low": "0.6", "high": "0.9"},
        "furtherIntervals": [{"low": "0.65", "high": "0.88", "confidence": "0.9"}],
        "passAtK": [{"k": 1, "value": "0.8", "tasks": 20}, {"k": 5, "value": "0.9", "tasks": 19}],
        "coverage": "0.95",
        "void": 1,
        "timeouts": 2,
        "truncations": 4,
        "contextOverflows": 1,
        "promptTokens": 900,
        "completionTokens": 100,
        "cost": "1.25",
        "durationSeconds": 60,
        "commands": {"commands": 40, "success": "0.7", "recovery": "0.4", "turnsToSolve": "3.5"},
        "discipline": {
            "trajectories": 19,
            "todoCompletion": "0.96",
            "extraTokens": "0.2",
            "phaseAdherence": "0.97",
            "success": "0.9",
            "tokensPerTask": "120",
            "tokenChange": "-0.25",
        },
    }
)


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
    return RunComparison.model_validate(
        {
            "baseline": "base",
            "verdict": verdict,
            "difference": "0.7",
            "interval": {"low": low, "high": "0.9"},
            "furtherIntervals": [{"low": "-0.1", "high": "0.95", "confidence": "0.99"}],
            "message": "other agent",
        }
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
        ({"metric": "Mean", "minimumImprovement": "0", "confidence": "0.95"}, "0.4", True),
        ({"metric": "Mean", "minimumImprovement": "0", "confidence": "0.99"}, "0.4", False),
        ({"metric": "Mean", "minimumImprovement": "0", "confidence": "0.9"}, "0.4", False),
        ({"metric": "Mean", "maximum": "0.8"}, None, True),
        ({"metric": "Mean", "maximum": "0.79"}, None, False),
        ({"metric": "Mean", "minimum": "0.6", "confidence": "0.95"}, None, True),
        ({"metric": "Mean", "minimum": "0.61", "confidence": "0.95"}, None, False),
        ({"metric": "Mean", "minimum": "0.65", "confidence": "0.9"}, None, True),
        ({"metric": "Mean", "maximum": "0.89", "confidence": "0.95"}, None, False),
        ({"metric": "PassAtK", "k": 5, "minimum": "0.9"}, None, True),
        ({"metric": "PassAtK", "k": 5, "minimum": "0.91"}, None, False),
        ({"metric": "PassAtK", "k": 2, "minimum": "0"}, None, False),
        ({"metric": "ErrorRate", "maximum": "0.05"}, None, True),
        ({"metric": "ErrorRate", "maximum": "0.04"}, None, False),
        ({"metric": "TimeoutRate", "maximum": "0.105264"}, None, True),
        ({"metric": "TimeoutRate", "maximum": "0.1"}, None, False),
        ({"metric": "TruncationRate", "maximum": "0.2"}, None, False),
        ({"metric": "OverflowRate", "maximum": "0.05"}, None, False),
        ({"metric": "OverflowRate", "maximum": "0.06"}, None, True),
        ({"metric": "TokensPerTrial", "maximum": "50"}, None, True),
        ({"metric": "TokensPerTrial", "maximum": "49"}, None, False),
        ({"metric": "Cost", "maximum": "1.25"}, None, True),
        ({"metric": "Cost", "maximum": "1.2"}, None, False),
        ({"metric": "DurationSeconds", "maximum": "59"}, None, False),
        ({"metric": "CommandSuccess", "minimum": "0.7"}, None, True),
        ({"metric": "CommandSuccess", "minimum": "0.71"}, None, False),
        ({"metric": "Recovery", "minimum": "0.4"}, None, True),
        ({"metric": "Recovery", "minimum": "0.41"}, None, False),
        ({"metric": "TurnsToSolve", "maximum": "3.5"}, None, True),
        ({"metric": "TurnsToSolve", "maximum": "3.4"}, None, False),
        ({"metric": "TodoCompletion", "minimum": "0.95"}, None, True),
        ({"metric": "TodoCompletion", "minimum": "0.97"}, None, False),
        ({"metric": "ExtraTokens", "maximum": "0.1"}, None, False),
        ({"metric": "ExtraTokens", "maximum": "0.2"}, None, True),
        ({"metric": "PhaseAdherence", "minimum": "0.98"}, None, False),
        ({"metric": "PhaseAdherence", "minimum": "0.97"}, None, True),
        ({"metric": "Success", "minimum": "0.9"}, None, True),
        ({"metric": "Success", "minimum": "0.91"}, None, False),
        ({"metric": "TokensPerTask", "maximum": "119"}, None, False),
        ({"metric": "TokensPerTask", "maximum": "120"}, None, True),
        ({"metric": "TokenChange", "maximum": "-0.2"}, None, True),
        ({"metric": "TokenChange", "maximum": "-0.3"}, None, False),
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


def test_a_figure_that_the_run_does_not_have_fails_its_gate_and_says_what_to_do() -> None:
    gates: tuple[dict[str, str], ...] = (
        {"metric": "Cost", "maximum": "9"},
        {"metric": "Mean", "minimum": "0", "confidence": "0.99"},
    )
    gates += ({"metric": "PhaseAdherence", "minimum": "0"}, {"metric": "TokenChange", "maximum": "0"})
    bare = RESULTS.model_copy(update={"cost": None, "discipline": None})
    judged = judge_gates(make_spec(*gates), results=bare, comparison=None, contaminated=[])
    assert judged.status == "False"
    assert "spec.gates[0]: the run has no Cost; set spec.prices" in judged.message
    assert "spec.gates[1]: the run has no Mean" in judged.message
    assert "spec.gates[2]: the run has no PhaseAdherence; set spec.discipline" in judged.message
    assert "spec.gates[3]: the run has no TokenChange; set spec.discipline and spec.baselineRef" in judged.message


def test_a_failed_bound_with_confidence_names_the_end_of_the_interval() -> None:
    gate = {"metric": "Mean", "minimum": "0.7", "confidence": "0.95"}
    judged = judge_gates(make_spec(gate), results=RESULTS, comparison=None, contaminated=[])
    assert "the lower end of Mean's 0.95 interval is 0.6, the gate asks for at least 0.7" in judged.message


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
