"""Whether a finished run counts: validity and gates. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from whetstone_api.benchmark_gates import GateMetric, GateSpec
from whetstone_api.benchmark_result import RunComparison, RunResults, Verdict
from whetstone_api.benchmarkrun import BenchmarkRunSpec
from whetstone_api.vocabulary import Reason

NAMED_TASKS = 5
"""Contaminated tasks that a message names."""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The state of a condition: `True`, `False` or `Unknown`, with reason and sentence."""

    status: str
    reason: Reason
    message: str


def judge_validity(results: RunResults, maximum_error_rate: str) -> Judgement:
    """Return the condition Valid: the share of void trials is at most `maximum_error_rate`."""
    share = Decimal(results.void) / Decimal(results.trials) if results.trials else Decimal(1)
    told = f"{results.void} of {results.trials} trials are void ({share:.1%}); spec.maximumErrorRate allows"
    allowed = f"{Decimal(maximum_error_rate):.1%}"
    if share <= Decimal(maximum_error_rate):
        return Judgement(status="True", reason=Reason.WITHIN_LIMITS, message=f"{told} {allowed}")
    fix = "the infrastructure spoiled them: see the trials' errors in the results' folder"
    return Judgement(status="False", reason=Reason.TOO_MANY_ERRORS, message=f"{told} {allowed}; {fix}")


def judge_gates(
    spec: BenchmarkRunSpec,
    *,
    results: RunResults,
    comparison: RunComparison | None,
    contaminated: Sequence[str],
) -> Judgement:
    """Return the condition GatePassed.

    Args:
        spec: The run's spec, with its gates.
        results: Its figures.
        comparison: Its comparison with the baseline.
        contaminated: Names of tasks that were in the adapter's training data.
    """
    validity = judge_validity(results, spec.maximum_error_rate)
    if validity.status == "False":
        return validity
    if contaminated:
        named = ", ".join(contaminated[:NAMED_TASKS])
        return Judgement(
            status="False",
            reason=Reason.CONTAMINATED,
            message=f"{len(contaminated)} tasks of the suite were in the adapter's training data ({named}); "
            "leave them out by spec.suite.harbor.tasks.exclude in a new run, or train without them",
        )
    if not spec.gates:
        return Judgement(status="Unknown", reason=Reason.NO_GATES, message="spec.gates is empty; nothing to pass")
    failures = [
        failure
        for position, gate in enumerate(spec.gates)
        if (failure := _failure(gate, position, results=results, comparison=comparison))
    ]
    if failures:
        incomparable = comparison is not None and comparison.verdict is Verdict.NOT_COMPARABLE
        reason = Reason.NOT_COMPARABLE if incomparable else Reason.GATE_FAILED
        return Judgement(status="False", reason=reason, message="; ".join(failures))
    return Judgement(status="True", reason=Reason.GATES_PASSED, message=f"all gates hold ({len(spec.gates)})")


def all_hold(gates: Sequence[GateSpec], *, results: RunResults, comparison: RunComparison | None) -> bool:
    """Return whether a run's figures pass gates that somebody else asks for."""
    return not any(
        _failure(gate, position, results=results, comparison=comparison) for position, gate in enumerate(gates)
    )


def _failure(gate: GateSpec, position: int, *, results: RunResults, comparison: RunComparison | None) -> str | None:
    where = f"spec.gates[{position}]"
    if gate.minimum is not None:
        value = _figure(gate.metric, results)
        if Decimal(value) >= Decimal(gate.minimum):
            return None
        return f"{where}: {gate.metric} is {value}, the gate asks for at least {gate.minimum}"
    needed = gate.minimum_improvement or "0"
    if comparison is None:
        return f"{where}: there is no comparison; minimumImprovement needs spec.baselineRef"
    if comparison.verdict is Verdict.NOT_COMPARABLE or comparison.interval is None:
        why = comparison.message or "no interval"
        return f"{where}: the run cannot be compared with {comparison.baseline}: {why}"
    low = comparison.interval.low
    if Decimal(low) > Decimal(needed):
        return None
    return (
        f"{where}: the improvement over {comparison.baseline} is {comparison.difference} with an interval from {low} "
        f"to {comparison.interval.high}; the gate asks for its lower end to be above {needed}"
    )


def _figure(metric: GateMetric, results: RunResults) -> str:
    figures = {
        GateMetric.MEAN: results.mean,
        GateMetric.STRICT_MEAN: results.strict_mean,
        GateMetric.COVERAGE: results.coverage,
    }
    return figures[metric]
