"""What a runner gets of the judge that its spec names. Pure."""

from typing import Any

from whetstone_api.benchmark_judge import JUDGE_AUTHORITY_VARIABLE, JUDGE_KEY_VARIABLE
from whetstone_api.benchmarkrun import BenchmarkRun, BenchmarkRunSpec

from whetstone_operator.resources.access import endpoint_variable, secret_variable


def judge_url(run: BenchmarkRun) -> str | None:
    """Return the base URL of the judge's API; None without a judge."""
    judge = run.spec.judge
    return None if judge is None else judge.base_url(run.metadata.namespace)


def judge_environment(spec: BenchmarkRunSpec) -> tuple[dict[str, Any], ...]:
    """Return the variables with the judge's key and the authorities of its certificate.

    Where trials run beside the runner there is no key, which they would find. Certificates are nobody's secret.
    """
    judge = spec.judge
    if judge is None:
        return ()
    # A missing Secret must not keep the run from its trials: the judge is then not heard, and the condition says so.
    found = []
    if not spec.suite.beside_runner:
        found.append(endpoint_variable(judge, JUDGE_KEY_VARIABLE, optional=True))
    if (authority := judge.certificate_authority_ref) is not None:
        found.append(secret_variable(JUDGE_AUTHORITY_VARIABLE, authority, optional=True))
    return tuple(one for one in found if one is not None)
