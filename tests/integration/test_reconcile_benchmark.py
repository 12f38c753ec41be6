"""The real operator against a real API server: BenchmarkRuns, baselines and gates."""

import json

import pytest
from integration.operator_process import OperatorProcess
from integration.world import RESULTS, World, user_error
from support.waiting import eventually

pytestmark = pytest.mark.integration
KIND = "BenchmarkRun"
BETTER = {
    "baseline": "baseline",
    "verdict": "Better",
    "difference": "0.4",
    "interval": {"low": "0.1", "high": "0.7"},
    "wins": 4,
    "losses": 0,
    "ties": 4,
}
GATE = [{"metric": "Mean", "minimumImprovement": "0"}]


def test_run_ends_with_figures_and_without_gates_to_judge(serving: World) -> None:
    serving.benchmark()
    serving.end_well(serving.wait_job("run", "run"), results=RESULTS, target={"servedName": "base"})
    serving.wait_reason(KIND, "run", "Succeeded", condition="Complete")
    status = serving.get(KIND, "run")["status"]
    assert status["results"]["mean"] == "0.5"
    assert status["target"] == {"servedName": "base"}
    valid, gate = (serving.condition(KIND, "run", name) for name in ("Valid", "GatePassed"))
    assert valid is not None
    assert (valid["status"], valid["reason"]) == ("True", "WithinLimits")
    assert gate is not None
    assert (gate["status"], gate["reason"]) == ("Unknown", "NoGates")


def test_missing_runner_account_is_told_with_the_charts_value(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve()
    world.start_engines()
    world.benchmark()
    ready = world.wait_reason(KIND, "run", "TrialsForbidden")
    assert "servedNamespaces" in ready["message"]
    world.account()
    world.wait_job("run", "run")


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({"adapter": "nobody"}, "spec.target.adapter: ModelServer server has no adapter nobody (its adapters: none)"),
        ({"alias": "nobody"}, "spec.target.alias: ModelServer server has no alias nobody (its aliases: none)"),
        ({"modelServerRef": {"name": "other"}}, "spec.target.modelServerRef.name: ModelServer other does not exist"),
    ],
)
def test_missing_target_is_named(serving: World, target: dict[str, object], words: str) -> None:
    serving.benchmark(target={"modelServerRef": {"name": "server"}, **target})
    assert words in serving.wait_reason(KIND, "run", "ReferenceNotFound")["message"]
    assert serving.jobs("run", kind="benchmark-run") == []


def test_run_created_before_everything_else_converges(world: World, operator: OperatorProcess) -> None:
    world.benchmark(baselineRef={"name": "baseline"}, gates=GATE)
    world.wait_reason(KIND, "run", "ReferenceNotFound")
    world.benchmark("baseline")
    world.wait_reason(KIND, "run", "ReferenceNotReady")
    world.account()
    world.serve()
    world.claims()
    world.start_engines()
    world.end_well(world.wait_job("baseline", "run"), results=RESULTS)
    world.end_well(world.wait_job("run", "run"), results=RESULTS, comparison=BETTER)
    world.wait_reason(KIND, "run", "Succeeded", condition="Complete")
    world.wait_reason(KIND, "run", "GatesPassed", condition="GatePassed")
    assert world.get(KIND, "run")["status"]["comparison"]["verdict"] == "Better"


def test_a_suspended_run_says_what_it_will_cost_before_anything_is_spent(serving: World) -> None:
    prices = {"inputPerMillion": "2", "outputPerMillion": "10"}
    serving.benchmark(baselineRef={"name": "baseline"}, prices=prices, suspend=True)

    def basis() -> str:
        found: str = serving.get(KIND, "run")["status"].get("estimate", {}).get("basis", "")
        return found

    eventually(lambda: "baseline does not exist yet" in basis(), what="an unknown cost")
    serving.benchmark("baseline")
    counted = {"promptTokens": 3_000_000, "completionTokens": 400_000}
    serving.end_well(serving.wait_job("baseline", "run"), results={**RESULTS, **counted})
    eventually(lambda: basis().startswith("tokens of the baseline"), what="the cost of as many tokens")
    estimate = serving.get(KIND, "run")["status"]["estimate"]
    assert estimate == {**counted, "cost": "10", "basis": basis()}
    assert "estimate" not in serving.get(KIND, "baseline")["status"]
    assert serving.jobs("run", kind="benchmark-run") == []
    serving.api.merge(KIND, "run", {"spec": {"suspend": False}}, namespace=serving.namespace)
    serving.end_well(serving.wait_job("run", "run"), results=RESULTS, comparison=BETTER)
    serving.wait_reason(KIND, "run", "Succeeded", condition="Complete")
    assert serving.get(KIND, "run")["status"]["estimate"] == estimate


def test_run_with_a_failed_gate_is_ready(serving: World) -> None:
    serving.benchmark(gates=[{"metric": "Mean", "minimum": "0.9"}])
    serving.end_well(serving.wait_job("run", "run"), results=RESULTS)
    gate = serving.wait_reason(KIND, "run", "GateFailed", condition="GatePassed")
    assert gate["status"] == "False"
    assert "0.5" in gate["message"]
    assert "0.9" in gate["message"]
    ready = serving.wait_reason(KIND, "run", "Succeeded")
    assert ready["status"] == "True"


def test_too_many_void_trials_make_a_run_invalid(serving: World) -> None:
    serving.benchmark()
    serving.end_well(serving.wait_job("run", "run"), results={**RESULTS, "void": 4, "coverage": "0.5"})
    valid = serving.wait_reason(KIND, "run", "TooManyErrors", condition="Valid")
    assert valid["status"] == "False"
    assert serving.wait_reason(KIND, "run", "Succeeded")["message"].startswith("not valid, so no score: mean 0.5")
    serving.benchmark("next", baselineRef={"name": "run"})
    serving.wait_job("next", "run")
    told = json.loads(serving.get("ConfigMap", "next-config")["data"]["config.json"])["baselineInvalid"]
    assert told == valid["message"]


def test_a_valid_baseline_is_told_to_be_one(serving: World) -> None:
    serving.benchmark(maximumErrorRate="0.5")
    serving.end_well(serving.wait_job("run", "run"), results={**RESULTS, "void": 4, "coverage": "0.5"})
    serving.wait_reason(KIND, "run", "WithinLimits", condition="Valid")
    serving.benchmark("next", baselineRef={"name": "run"}, maximumErrorRate="0.2")
    serving.wait_job("next", "run")
    config = json.loads(serving.get("ConfigMap", "next-config")["data"]["config.json"])
    assert (config["baselineInvalid"], config["maximumErrorRate"]) == ("", "0.2")


def test_contaminated_run_passes_no_gate(serving: World) -> None:
    serving.benchmark(gates=[{"metric": "Mean", "minimum": "0.1"}])
    serving.end_well(serving.wait_job("run", "run"), results=RESULTS, contaminated=["task-3"])
    gate = serving.wait_reason(KIND, "run", "Contaminated", condition="GatePassed")
    assert "task-3" in gate["message"]


def test_bad_task_fails_the_run_at_once(serving: World) -> None:
    serving.benchmark()
    words = "spec.suite.harbor.dataset.uri (pvc://data/tasks): task sort-lines has no tests/test.sh; add it"
    job = serving.wait_job("run", "run")
    serving.end_pod(job, user_error("TasksInvalid", words))
    failed = serving.wait_reason(KIND, "run", "TasksInvalid", condition="Failed")
    assert failed["message"] == words
    assert len(serving.pods(job)) == 1


def test_baselines_in_a_circle_are_told(serving: World) -> None:
    serving.benchmark("one", baselineRef={"name": "two"})
    serving.benchmark("two", baselineRef={"name": "one"})
    eventually(
        lambda: any(
            (current := serving.condition(KIND, name, "Failed")) and "form a cycle" in current["message"]
            for name in ("one", "two")
        ),
        what="the circle is told",
    )


def test_kill_during_a_run_starts_nothing_twice(serving: World, operator: OperatorProcess) -> None:
    serving.benchmark()
    job = serving.wait_job("run", "run")
    operator.kill()
    serving.end_well(job, results=RESULTS)
    operator.start()
    serving.wait_reason(KIND, "run", "Succeeded", condition="Complete")
    uids = [one["metadata"]["uid"] for one in serving.jobs("run", kind="benchmark-run")]
    assert uids == [job["metadata"]["uid"]]
