"""The real operator against a real API server: what a judge said stands in the status and moves nothing else."""

import json
from typing import Any

import pytest
from integration.operator_process import OperatorProcess
from integration.world import RESULTS, World

pytestmark = pytest.mark.integration
KIND = "BenchmarkRun"
JUDGED = {
    "uri": "pvc://results/run/judge/0",
    "judge": "sha256:0",
    "model": "large",
    "trials": 3,
    "unparsed": 1,
    "unanswered": 0,
    "reasoning": "3.5",
    "completeness": "4",
    "agreement": {"trials": 3, "agreement": "0.666667", "kappa": "0"},
    "tokens": 900,
}


@pytest.mark.parametrize(
    ("changes", "status", "reason"),
    [({}, "True", "Judged"), ({"unanswered": 2, "stopped": "the judge is away"}, "False", "JudgeIncomplete")],
)
def test_opinions_stand_beside_the_score_and_a_judge_that_is_away_voids_nothing(
    world: World, operator: OperatorProcess, changes: dict[str, Any], status: str, reason: str
) -> None:
    world.claims()
    world.account()
    world.serve()
    world.start_engines()
    world.benchmark(
        judge={"model": "large", "url": "http://judge:1/v1", "secretRef": {"name": "keys", "key": "judge"}},
        gates=[{"metric": "Mean", "minimum": "0.1"}],
    )
    job = world.wait_job("run", "run")
    config = json.loads(world.get("ConfigMap", "run-config")["data"]["config.json"])
    assert (config["judge"]["model"], config["judgeUrl"]) == ("large", "http://judge:1/v1")
    variables = {one["name"]: one for one in job["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert variables["WHETSTONE_JUDGE_KEY"]["valueFrom"]["secretKeyRef"]["name"] == "keys"
    world.end_well(job, results=RESULTS, judged={**JUDGED, **changes})
    assert world.wait_reason(KIND, "run", reason, condition="Judged")["status"] == status
    assert world.wait_reason(KIND, "run", "Succeeded", condition="Ready")["status"] == "True"
    assert world.wait_reason(KIND, "run", "GatesPassed", condition="GatePassed")["status"] == "True"
    assert world.get(KIND, "run")["status"]["judged"] == {**JUDGED, **changes}
