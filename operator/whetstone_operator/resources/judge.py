"""What a runner gets of the judge that its spec names. Pure."""

from typing import Any

from whetstone_api.access import SecretKeyRef
from whetstone_api.benchmark_judge import JUDGE_AUTHORITY_VARIABLE, JUDGE_KEY_VARIABLE, JudgeSpec
from whetstone_api.benchmarkrun import BenchmarkRun, BenchmarkRunSpec

from whetstone_operator.resources.access import runner_environment


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
    key = () if spec.suite.beside_runner else _key(judge)
    return (*key, *_variable(JUDGE_AUTHORITY_VARIABLE, judge.certificate_authority_ref))


def _key(judge: JudgeSpec) -> tuple[dict[str, Any], ...]:
    if judge.model_server_ref is not None:
        return (runner_environment(judge.model_server_ref.name, variable=JUDGE_KEY_VARIABLE),)
    return _variable(JUDGE_KEY_VARIABLE, judge.secret_ref)


def _variable(name: str, reference: SecretKeyRef | None) -> tuple[dict[str, Any], ...]:
    if reference is None:
        return ()
    # A missing Secret must not keep the run from its trials: the judge is then not heard, and the condition says so.
    return ({"name": name, "valueFrom": {"secretKeyRef": {**reference.to_wire(), "optional": True}}},)
