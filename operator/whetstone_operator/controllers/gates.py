"""Whether a finished run counts: validity and gates. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from whetstone_api.benchmark_discipline import DisciplineFigures
from whetstone_api.benchmark_gates import DISCIPLINE_METRICS, GateMetric, GateSpec
from whetstone_api.benchmark_result import CommandFigures, Interval, RunComparison, RunResults, Verdict
from whetstone_api.benchmarkrun import BenchmarkRun, BenchmarkRunSpec
from whetstone_api.vocabulary import ConditionType, Reason
from whetstone_artifacts.validity import told_share, why_invalid

_PLACES: Final = Decimal("0.000001")
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
    told = told_share(results, maximum_error_rate)
    if why_invalid(results, None, maximum_error_rate) is None:
        return Judgement(status="True", reason=Reason.WITHIN_LIMITS, message=told)
    fix = "the infrastructure spoiled them: see the trials' errors in the results' folder"
    return Judgement(status="False", reason=Reason.TOO_MANY_ERRORS, message=f"{told}; {fix}")


def why_not_valid(run: BenchmarkRun) -> str | None:
    """Say why an ended run is not valid; empty where it is, None where that is not known."""
    valid = next((one for one in run.status.conditions or [] if one.type == ConditionType.VALID), None)
    if valid is None or valid.status == "Unknown":
        return None
    return "" if valid.status == "True" else valid.message


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
    if spec.suite.assisted:
        return Judgement(
            status="False",
            reason=Reason.EXPERT_ASSISTED,
            message="spec.suite.toolUse.expert acted in the model's place, so the run is no score of the model; for"
            " one, leave expert out in a new run",
        )
    if contaminated:
        named = ", ".join(contaminated[:NAMED_TASKS])
        return Judgement(
            status="False",
            reason=Reason.CONTAMINATED,
            message=f"{len(contaminated)} tasks of the suite were in the adapter's training data ({named}); "
            f"leave them out by {spec.suite.filter_field} in a new run, or train without them",
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
    if gate.minimum_improvement is not None:
        return _no_improvement(gate, where, comparison=comparison)
    name = f"{gate.metric} at k={gate.k}" if gate.k is not None else str(gate.metric)
    value = figure(gate, results)
    if value is None:
        return f"{where}: the run has no {name}; {_MISSING.get(gate.metric, 'look at its void trials')}"
    if gate.confidence is not None:
        name = f"the {'lower' if gate.minimum is not None else 'upper'} end of {name}'s {gate.confidence} interval"
    if gate.minimum is not None:
        kept, asked = Decimal(value) >= Decimal(gate.minimum), f"at least {gate.minimum}"
    else:
        kept, asked = Decimal(value) <= Decimal(gate.maximum or "0"), f"at most {gate.maximum}"
    return None if kept else f"{where}: {name} is {value}, the gate asks for {asked}"


def _no_improvement(gate: GateSpec, where: str, *, comparison: RunComparison | None) -> str | None:
    needed = gate.minimum_improvement or "0"
    if comparison is None:
        return f"{where}: there is no comparison; minimumImprovement needs spec.baselineRef"
    interval = _interval(gate, comparison.interval, comparison.further_intervals)
    if comparison.verdict is Verdict.NOT_COMPARABLE or interval is None:
        why = comparison.message or "no interval"
        return f"{where}: the run cannot be compared with {comparison.baseline}: {why}"
    if Decimal(interval.low) > Decimal(needed):
        return None
    return (
        f"{where}: the improvement over {comparison.baseline} is {comparison.difference} with an interval from "
        f"{interval.low} to {interval.high}; the gate asks for its lower end to be above {needed}"
    )


_MISSING: Final = {
    GateMetric.COST: "set spec.prices in a new run",
    GateMetric.PASS_AT_K: "no task has so many scored trials; raise spec.attempts or look at the void trials",
    GateMetric.COMMAND_SUCCESS: "its trajectories tell no exit codes of commands; those of the agent whetstone do",
    GateMetric.RECOVERY: "its trajectories tell of no failed command with another one after it",
    GateMetric.TURNS_TO_SOLVE: "no trial was solved by an agent whose turns are counted",
    **dict.fromkeys(DISCIPLINE_METRICS, "set spec.discipline in a new run, and see that its rules name the tools"),
    GateMetric.TOKEN_CHANGE: "set spec.discipline and spec.baselineRef in a new run, with tasks that both have",
}
"""What to do about a figure that a run does not have."""


def figure(gate: GateSpec, results: RunResults) -> str | None:
    """Return what a gate looks at, as decimal text; None where the run does not have it.

    Args:
        gate: Its metric, and with a confidence, which end of the interval.
        results: The run's figures.
    """
    if gate.confidence is not None:
        interval = _interval(gate, results.interval, results.further_intervals)
        return None if interval is None else interval.low if gate.minimum is not None else interval.high
    scored = results.trials - results.void
    tokens = (results.prompt_tokens or 0) + (results.completion_tokens or 0)
    discipline = results.discipline or DisciplineFigures(trajectories=0)
    commands = results.commands or CommandFigures(commands=0)
    found: dict[GateMetric, str | None] = {
        GateMetric.MEAN: results.mean,
        GateMetric.STRICT_MEAN: results.strict_mean,
        GateMetric.COVERAGE: results.coverage,
        GateMetric.PASS_AT_K: next((one.value for one in results.pass_at_k or [] if one.k == gate.k), None),
        GateMetric.ERROR_RATE: _share(results.void, results.trials),
        GateMetric.TIMEOUT_RATE: _share(results.timeouts, scored),
        GateMetric.TRUNCATION_RATE: _share(results.truncations, scored),
        GateMetric.OVERFLOW_RATE: _share(results.context_overflows, scored),
        GateMetric.TOKENS_PER_TRIAL: _share(tokens, results.trials),
        GateMetric.COST: results.cost,
        GateMetric.DURATION_SECONDS: None if results.duration_seconds is None else str(results.duration_seconds),
        GateMetric.COMMAND_SUCCESS: commands.success,
        GateMetric.RECOVERY: commands.recovery,
        GateMetric.TURNS_TO_SOLVE: commands.turns_to_solve,
        GateMetric.TODO_COMPLETION: discipline.todo_completion,
        GateMetric.EXTRA_TOKENS: discipline.extra_tokens,
        GateMetric.PHASE_ADHERENCE: discipline.phase_adherence,
        GateMetric.SUCCESS: discipline.success,
        GateMetric.TOKENS_PER_TASK: discipline.tokens_per_task,
        GateMetric.TOKEN_CHANGE: discipline.token_change,
    }
    return found[gate.metric]


def _interval(gate: GateSpec, first: Interval | None, further: Sequence[Interval] | None) -> Interval | None:
    wanted = Decimal(gate.confidence or "0.95")
    known = [one for one in (first, *(further or ())) if one is not None]
    return next((one for one in known if Decimal(one.confidence) == wanted), None)


def _share(part: int, whole: int) -> str | None:
    return format((Decimal(part) / Decimal(whole)).quantize(_PLACES).normalize(), "f") if whole else None
