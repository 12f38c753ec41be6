"""What a BenchmarkRun will cost, from what its baseline has cost and what it may use. Pure."""

from decimal import Decimal

from whetstone_api.benchmark_estimate import RunEstimate
from whetstone_api.benchmark_result import MILLION, TokenPrices
from whetstone_api.benchmarkrun import BenchmarkRun, BenchmarkRunSpec

from whetstone_operator.prices import amount_text


def estimate_run(spec: BenchmarkRunSpec, prices: TokenPrices, baseline: BenchmarkRun | None) -> RunEstimate:
    """Return what a run will cost.

    Args:
        spec: The run's.
        prices: What tokens cost.
        baseline: The run that it is compared with, as it is now; None where there is none.
    """
    most, limit = None, spec.agent.budget.run_tokens if spec.agent.budget else None
    bases = []
    if limit is not None:
        dearest = max(Decimal(prices.input_per_million), Decimal(prices.output_per_million))
        most = amount_text(limit * dearest / MILLION)
        bases = [f"at most agent.budget.runTokens, {limit}, all of the dearer kind"]
    tokens = None if baseline is None else _tokens(spec, baseline)
    if baseline is None or tokens is None:
        return RunEstimate(most=most, basis="; ".join([_unknown(spec, baseline), *bases]))
    basis = f"tokens of the baseline {baseline.metadata.name}, taken to have done the same tasks"
    if spec.attempts != baseline.spec.attempts:
        basis += f", {spec.attempts} instead of {baseline.spec.attempts} times"
    prompt, completion = tokens
    return RunEstimate(
        prompt_tokens=prompt,
        completion_tokens=completion,
        cost=amount_text(prices.cost(prompt_tokens=prompt, completion_tokens=completion)),
        most=most,
        basis="; ".join([basis, *bases]),
    )


def _tokens(spec: BenchmarkRunSpec, baseline: BenchmarkRun) -> tuple[int, int] | None:
    """Return prompt and completion tokens, if each attempt takes what one of the baseline's took."""
    results = baseline.status.results
    if results is None or results.prompt_tokens is None or results.completion_tokens is None:
        return None
    share = Decimal(spec.attempts) / baseline.spec.attempts
    return round(results.prompt_tokens * share), round(results.completion_tokens * share)


def _unknown(spec: BenchmarkRunSpec, baseline: BenchmarkRun | None) -> str:
    if spec.baseline_ref is None:
        return "unknown without baselineRef: no run says how many tokens these tasks take"
    if baseline is None:
        return f"unknown: the baseline {spec.baseline_ref.name} does not exist yet"
    return f"unknown: the baseline {baseline.metadata.name} has not counted its tokens yet"
