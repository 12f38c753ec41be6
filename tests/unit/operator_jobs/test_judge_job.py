"""What a runner gets of the judge, and what its answers make of the run's conditions."""

from typing import Any

import pytest
from whetstone_api.benchmark_judge import JUDGE_AUTHORITY_VARIABLE, JUDGE_KEY_VARIABLE, Judged
from whetstone_api.benchmarkrun import BenchmarkRun
from whetstone_api.vocabulary import Reason
from whetstone_operator.controllers.judged import judge_state
from whetstone_operator.resources.judge import judge_environment, judge_url

BY_URL = {"model": "m", "url": "https://judge/v1", "secretRef": {"name": "keys", "key": "judge"}}
BY_SERVER = {"model": "m", "modelServerRef": {"name": "large"}}


def run(judge: dict[str, Any] | None, *, kind: str = "Pod") -> BenchmarkRun:
    spec = {
        "target": {"modelServerRef": {"name": "server"}},
        "suite": {"harbor": {"dataset": {"uri": "pvc://data/tasks"}, "environment": {"kind": kind}}},
        "output": {"uri": "pvc://results/run"},
        **({"judge": judge} if judge else {}),
    }
    return BenchmarkRun.model_validate({"metadata": {"name": "run", "namespace": "team", "uid": "u"}, "spec": spec})


@pytest.mark.parametrize(
    ("judge", "url", "secret"),
    [
        (None, None, None),
        (BY_URL, "https://judge/v1", {"name": "keys", "key": "judge", "optional": True}),
        ({"model": "m", "url": "http://judge"}, "http://judge", None),
        (BY_SERVER, "http://large.team.svc/v1", {"name": "large-access", "key": "runner-key", "optional": True}),
    ],
)
def test_the_runner_gets_the_judges_place_and_key(
    judge: dict[str, Any] | None, url: str | None, secret: dict[str, Any] | None
) -> None:
    assert judge_url(run(judge)) == url
    expected = () if secret is None else ({"name": JUDGE_KEY_VARIABLE, "valueFrom": {"secretKeyRef": secret}},)
    assert judge_environment(run(judge).spec) == expected


@pytest.mark.parametrize("kind", ["Pod", "Process"])
def test_the_runner_gets_the_authorities_of_the_judges_certificate(kind: str) -> None:
    judge = {"model": "m", "url": "https://judge/v1", "certificateAuthorityRef": {"name": "trust", "key": "ca.crt"}}
    (variable,) = judge_environment(run(judge, kind=kind).spec)
    reference = {"name": "trust", "key": "ca.crt", "optional": True}
    assert variable == {"name": JUDGE_AUTHORITY_VARIABLE, "valueFrom": {"secretKeyRef": reference}}


@pytest.mark.parametrize("judge", [BY_URL, BY_SERVER])
def test_trials_beside_the_runner_find_no_key_of_the_judge(judge: dict[str, Any]) -> None:
    assert judge_environment(run(judge, kind="Process").spec) == ()


@pytest.mark.parametrize(
    ("unanswered", "stopped", "status", "reason"),
    [(0, None, "True", Reason.JUDGED), (2, "the judge m does not answer: 503", "False", Reason.JUDGE_INCOMPLETE)],
)
def test_the_condition_says_what_has_no_answer_and_why(
    unanswered: int, stopped: str | None, status: str, reason: Reason
) -> None:
    judged = Judged(
        uri="pvc://r/j", judge="sha256:0", model="m", trials=3, unparsed=1, unanswered=unanswered, stopped=stopped
    )
    told = judge_state(judged)
    assert (told.status, told.reason) == (status, reason)
    assert "m gave an opinion on 3 trials, 1 answers were none" in told.message
    assert (stopped or "") in told.message
