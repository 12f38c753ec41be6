"""Whether a finished run counts, by what it left. Pure.

Who measures, who adopts, who compares and who shows a run ask here, so that no figure of a spoiled run is taken for a
score anywhere.
"""

from decimal import Decimal

from whetstone_api.benchmark_result import RunResults
from whetstone_api.benchmark_target import EngineCheck


def void_share(results: RunResults) -> Decimal:
    """Return the share of void trials; of a run without trials, all of them."""
    return Decimal(results.void) / Decimal(results.trials) if results.trials else Decimal(1)


def told_share(results: RunResults, maximum_error_rate: str) -> str:
    """Say how many trials are void, and how many may be."""
    told = f"{results.void} of {results.trials} trials are void ({void_share(results):.1%})"
    return f"{told}; spec.maximumErrorRate allows {Decimal(maximum_error_rate):.1%}"


def why_invalid(results: RunResults, check: EngineCheck | None, maximum_error_rate: str) -> str | None:
    """Say why a run is not valid; None where it is, as far as its files tell.

    Args:
        results: Its figures.
        check: Whether the engines stayed the same; None where nobody could tell.
        maximum_error_rate: Share of void trials up to which it counts.
    """
    if check is not None and check.change is not None:
        return check.change
    if void_share(results) > Decimal(maximum_error_rate):
        return told_share(results, maximum_error_rate)
    return None
