"""What a BenchmarkRun is said to cost before it begins."""

from typing import Any

import pytest
from whetstone_api.benchmark_result import TokenPrices
from whetstone_api.benchmarkrun import BenchmarkRun, BenchmarkRunSpec
from whetstone_operator.controllers.run_estimate import estimate_run

PRICES = TokenPrices.model_validate({"inputPerMillion": "2", "outputPerMillion": "10"})
COUNTED = {"promptTokens": 3_000_000, "completionTokens": 400_000}
FIGURES = {"tasks": 4, "trials": 4, "mean": "1", "strictMean": "1", "coverage": "1", "void": 0}
BASE = {"baselineRef": {"name": "base"}}


def spec(**fields: Any) -> dict[str, Any]:
    return {
        "target": {"modelServerRef": {"name": "m"}},
        "suite": {"harbor": {"dataset": {"uri": "pvc://data/tasks"}}},
        "output": {"uri": "pvc://results/run"},
        **fields,
    }


def base(attempts: int = 1, results: dict[str, Any] | None = COUNTED) -> BenchmarkRun:
    """The baseline, with what it has counted; None for one that has not ended."""
    metadata = {"name": "base", "namespace": "team", "uid": "u", "generation": 1}
    status = {} if results is None else {"results": {**FIGURES, **results}}
    return BenchmarkRun.model_validate({"metadata": metadata, "spec": spec(attempts=attempts), "status": status})


def told(baseline: BenchmarkRun | None = None, **fields: Any) -> dict[str, Any]:
    return estimate_run(BenchmarkRunSpec.model_validate(spec(**fields)), PRICES, baseline).to_wire()


def test_a_run_is_taken_to_need_the_tokens_of_its_baseline() -> None:
    assert told(base(), **BASE) == {
        **COUNTED,
        "cost": "10",
        "basis": "tokens of the baseline base, taken to have done the same tasks",
    }
    more = told(base(2), attempts=3, **BASE)
    assert (more["promptTokens"], more["completionTokens"], more["cost"]) == (4_500_000, 600_000, "15")
    assert more["basis"].endswith(", 3 instead of 2 times")


@pytest.mark.parametrize(
    ("baseline", "fields", "basis"),
    [
        (None, {}, "unknown without baselineRef: no run says how many tokens these tasks take"),
        (None, BASE, "unknown: the baseline base does not exist yet"),
        (base(results=None), BASE, "unknown: the baseline base has not counted its tokens yet"),
        (base(results={}), BASE, "unknown: the baseline base has not counted its tokens yet"),
    ],
)
def test_what_nobody_knows_is_said_to_be_unknown(
    baseline: BenchmarkRun | None, fields: dict[str, Any], basis: str
) -> None:
    assert told(baseline, **fields) == {"basis": basis}


def test_a_budget_says_what_it_can_cost_at_most() -> None:
    limited = {"agent": {"budget": {"runTokens": 500_000}}}
    found = told(**limited)
    assert (found["most"], "cost" in found) == ("5", False)
    assert found["basis"].endswith("; at most agent.budget.runTokens, 500000, all of the dearer kind")
    both = told(base(), **limited, **BASE)
    assert (both["cost"], both["most"]) == ("10", "5")
