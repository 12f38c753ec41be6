"""Whether the engines stayed the same is asked by the runner, kept with the results, and believed when adopted."""

import json
from typing import Any

import pytest
from integration.operator_process import OperatorProcess
from integration.world import RESULTS, World
from support.waiting import eventually

pytestmark = pytest.mark.integration
KIND = "BenchmarkRun"
ENGINE = {"image": "engine:1", "settings": "sha256:1"}
CHANGE = "the engines changed during the run: image engine:1 -> engine:2"
GATE = {"metric": "Mean", "minimum": "0.1"}


def test_runner_is_told_what_became_of_the_engines_and_nobody_else_is(
    serving: World, operator: OperatorProcess
) -> None:
    serving.benchmark()
    job = serving.wait_job("run", "run")
    config = json.loads(serving.get("ConfigMap", "run-config")["data"]["config.json"])
    path = f"v1/engine-checks/benchmarkruns/{serving.namespace}/run"
    assert config["engineCheckUrl"].endswith(f"/{path}")
    token = serving.pod_token(eventually(lambda: serving.pods(job), what="a pod")[0])

    def ask(body: dict[str, Any], *, bearer: str = token, place: str = path) -> tuple[int, str]:
        return operator.post(place, token=bearer, body=body)

    status, text = ask(config["engine"])
    assert status == 200
    assert set(json.loads(text)) == {"checkedAt"}
    status, text = ask({**config["engine"], "image": "engine:before"})
    assert (status, f"image engine:before -> {config['engine']['image']}" in json.loads(text)["change"]) == (200, True)
    assert ask(config["engine"], bearer="forged")[0] == 401
    assert ask(config["engine"], place=path.replace("/run", "/other"))[0] == 403
    assert ask(config["engine"], place=path.replace("benchmarkruns", "modelservers"))[0] == 404
    assert ask({"image": 7})[0] == 400


@pytest.mark.parametrize(
    ("told", "status", "reason"),
    [
        ({"engineCheck": {"checkedAt": "2026-01-01T00:00:00Z"}}, "True", "WithinLimits"),
        ({"engineCheck": {"checkedAt": "2026-01-01T00:00:00Z", "change": CHANGE}}, "False", "TargetChanged"),
        ({}, "Unknown", "EnginesUnchecked"),
    ],
)
def test_adoption_never_makes_a_spoiled_run_valid(
    serving: World, told: dict[str, Any], status: str, reason: str
) -> None:
    serving.benchmark(gates=[GATE])
    target = {"servedName": "base", "engine": ENGINE}
    serving.end_well(serving.wait_job("run", "run"), results=RESULTS, adopted=True, target=target, **told)
    assert serving.wait_reason(KIND, "run", reason, condition="Valid")["status"] == status
    gate = serving.wait_reason(KIND, "run", "GatesPassed" if status == "True" else reason, condition="GatePassed")
    assert gate["status"] == status
    assert status == "True" or "under another spec.output.uri" in gate["message"]


def test_what_the_runner_was_told_counts_whatever_comes_later(serving: World) -> None:
    serving.benchmark(gates=[GATE])
    check = {"checkedAt": "2026-01-01T00:00:00Z", "change": CHANGE}
    serving.end_well(serving.wait_job("run", "run"), results=RESULTS, engineCheck=check)
    assert CHANGE in serving.wait_reason(KIND, "run", "TargetChanged", condition="Valid")["message"]
