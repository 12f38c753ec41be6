"""What a runner gets of the judge that its spec names. Pure."""

from typing import Any

from whetstone_api.benchmark_judge import JUDGE_KEY_VARIABLE
from whetstone_api.benchmarkrun import BenchmarkRun, BenchmarkRunSpec

from whetstone_operator.resources.access import runner_environment


def judge_url(run: BenchmarkRun) -> str | None:
    """Return the base URL of the judge's API; None without a judge."""
    judge = run.spec.judge
    return None if judge is None else judge.base_url(run.metadata.namespace)


def judge_environment(spec: BenchmarkRunSpec) -> tuple[dict[str, Any], ...]:
    """Return the variable with the judge's key; none where trials run beside the runner, which would find it."""
    judge = spec.judge
    if judge is None or spec.suite.beside_runner:
        return ()
    if judge.model_server_ref is not None:
        return (runner_environment(judge.model_server_ref.name, variable=JUDGE_KEY_VARIABLE),)
    if judge.secret_ref is None:
        return ()
    # A missing Secret must not keep the run from its trials: the judge then refuses, and the condition says so.
    reference = {**judge.secret_ref.to_wire(), "optional": True}
    return ({"name": JUDGE_KEY_VARIABLE, "valueFrom": {"secretKeyRef": reference}},)
