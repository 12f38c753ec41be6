"""The real operator against a real API server: BenchmarkRuns with a `toolUse` suite."""

import json
from typing import Any

import pytest
from integration.operator_process import OperatorProcess
from integration.world import RESULTS, World, user_error
from support.waiting import eventually

pytestmark = pytest.mark.integration
KIND = "BenchmarkRun"


def suite(**fields: Any) -> dict[str, Any]:
    return {
        "toolUse": {"environment": {"uri": "pvc://data/company"}, "instances": {"file": "test.json"}, **fields},
    }


@pytest.fixture
def serving(world: World, operator: OperatorProcess) -> World:
    """A namespace with a serving server, and no account that may create pods."""
    world.claims()
    world.serve()
    world.start_engines()
    return world


def secret(world: World, **values: str) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "stringData": values}
    world.api.create(body, namespace=world.namespace)


def test_a_run_needs_no_account_and_ends_with_figures(serving: World) -> None:
    serving.benchmark(suite=suite())
    job = serving.wait_job("run", "run")
    pod = job["spec"]["template"]["spec"]
    assert "serviceAccountName" not in pod
    config = serving.get("ConfigMap", "run-config")["data"]
    told = json.loads(next(iter(config.values())))
    assert told["toolUse"]["instances"] == {"file": "test.json"}
    assert told["environmentPath"] == "/mnt/claims/data/company"
    serving.end_well(job, results=RESULTS, target={"servedName": "base"})
    serving.wait_reason(KIND, "run", "Succeeded", condition="Complete")
    assert serving.wait_reason(KIND, "run", "WithinLimits", condition="Valid")["status"] == "True"


def test_a_key_that_is_missing_is_waited_for_by_name(serving: World) -> None:
    serving.benchmark(suite=suite(api={"url": "http://company", "secretRef": {"name": "keys", "key": "company"}}))
    missing = serving.wait_reason(KIND, "run", "SecretNotFound")["message"]
    assert missing.startswith("spec.suite.toolUse.api.secretRef.name: Secret keys does not exist")
    secret(serving, other="x")
    eventually(
        lambda: "Secret keys has no key company" in (serving.condition(KIND, "run", "Ready") or {})["message"],
        what="the missing key is named",
    )
    serving.api.merge("Secret", "keys", {"stringData": {"company": "x"}}, namespace=serving.namespace)
    serving.wait_job("run", "run")


def test_a_run_that_an_expert_helped_collects_and_passes_no_gate(serving: World) -> None:
    rows = {"uri": "pvc://results/run/collect/sft-0.jsonl", "digest": "sha256:" + "0" * 64, "rows": 3}
    expert = {"mode": "GroundTruth"}
    gates = [{"metric": "Mean", "minimum": "0"}]
    serving.benchmark(suite=suite(expert=expert), collect={"sft": {}}, gates=gates)
    job = serving.wait_job("run", "run")
    serving.end_well(job, results={**RESULTS, "expertSteps": 9}, collected={"sft": rows})
    gate = serving.wait_reason(KIND, "run", "ExpertAssisted", condition="GatePassed")
    assert gate["status"] == "False"
    assert serving.wait_reason(KIND, "run", "WithinLimits", condition="Valid")["status"] == "True"
    status = serving.get(KIND, "run")["status"]
    assert status["collected"]["sft"] == rows
    assert status["results"]["expertSteps"] == 9


def test_a_wrong_instance_fails_the_run_at_once(serving: World) -> None:
    serving.benchmark(suite=suite())
    words = "spec.suite.toolUse.environment (pvc://data/company): test.json: instance i1: answers: add it"
    serving.end_pod(serving.wait_job("run", "run"), user_error("TasksInvalid", words))
    assert serving.wait_reason(KIND, "run", "TasksInvalid", condition="Failed")["message"] == words
