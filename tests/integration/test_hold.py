"""The real operator against a real API server: a benchmark at work holds its server."""

import json
from typing import Any

import pytest
from integration.operator_process import OperatorProcess
from integration.world import RESULTS, World
from support.waiting import eventually

pytestmark = pytest.mark.integration
KIND = "BenchmarkRun"
TARGET = {"modelServerRef": {"name": "server"}}


def change(world: World, kind: str, name: str, **fields: Any) -> None:
    world.api.merge(kind, name, {"spec": fields}, namespace=world.namespace)


def engine(world: World) -> dict[str, Any]:
    return world.get("Deployment", "server-engine")


def held(world: World) -> dict[str, Any] | None:
    return world.condition("ModelServer", "server", "Held")


def test_change_that_restarts_engines_waits_for_the_end_of_a_run(serving: World) -> None:
    serving.benchmark()
    job = serving.wait_job("run", "run")
    told = eventually(lambda: held(serving), what="the server is held")
    assert (told["status"], told["reason"]) == ("True", "BenchmarkRunning")
    assert "run (measures base, until" in told["message"]
    assert "no change waits" in told["message"]
    before = engine(serving)
    change(serving, "ModelServer", "server", engine={"extraArgs": ["--max-num-seqs=3"]}, replicas=2)
    eventually(lambda: "a change of the spec waits" in (held(serving) or {})["message"], what="the change waits")
    assert engine(serving)["metadata"]["generation"] == before["metadata"]["generation"]
    ready = serving.condition("ModelServer", "server", "Ready")
    assert ready is not None
    assert ready["status"] == "True"
    serving.end_well(job, results=RESULTS)
    eventually(lambda: engine(serving)["spec"]["replicas"] == 2, what="the change is applied")
    assert "--max-num-seqs=3" in str(engine(serving)["spec"]["template"])
    eventually(lambda: held(serving) is None, what="nothing holds the server")
    valid = serving.wait_reason(KIND, "run", "WithinLimits", condition="Valid")
    assert valid["status"] == "True"


def test_deleted_deployment_of_a_held_server_comes_back(serving: World) -> None:
    serving.benchmark()
    serving.wait_job("run", "run")
    eventually(lambda: held(serving), what="the server is held")
    before = engine(serving)["metadata"]["uid"]
    serving.api.delete("Deployment", "server-engine", namespace=serving.namespace)
    eventually(lambda: engine(serving)["metadata"]["uid"] != before, what="another Deployment")


def test_second_run_of_a_server_waits_unless_both_share_it(serving: World) -> None:
    serving.benchmark("first", target={**TARGET, "shared": True})
    first = serving.wait_job("first", "run")
    serving.benchmark("second")
    told = serving.wait_reason(KIND, "second", "ServerHeld")
    assert "ModelServer server is held by BenchmarkRun first" in told["message"]
    assert serving.jobs("second", kind="benchmark-run") == []
    serving.benchmark("third", target={**TARGET, "shared": True})
    third = serving.wait_job("third", "run")
    serving.end_well(first, results=RESULTS)
    serving.end_well(third, results=RESULTS)
    serving.wait_job("second", "run")


def test_suspended_run_lets_another_one_pass_and_then_goes_on(serving: World) -> None:
    serving.benchmark("first")
    first = serving.wait_job("first", "run")
    change(serving, KIND, "first", suspend=True)
    serving.wait_reason(KIND, "first", "Suspended")
    eventually(lambda: held(serving) is None, what="nothing holds the server")
    serving.benchmark("second")
    second = serving.wait_job("second", "run")
    change(serving, KIND, "first", suspend=False)
    serving.wait_reason(KIND, "first", "ServerHeld")
    assert serving.get("Job", first["metadata"]["name"])["spec"]["suspend"] is True
    serving.end_well(second, results=RESULTS)
    eventually(lambda: not serving.get("Job", first["metadata"]["name"])["spec"]["suspend"], what="the first goes on")


def test_run_whose_engines_became_others_is_not_valid_and_passes_no_gate(
    serving: World, operator: OperatorProcess
) -> None:
    """The Job is made to remember another image, as if somebody had changed it behind the operator's back."""
    serving.benchmark(gates=[{"metric": "Mean", "minimum": "0.1"}])
    job = serving.wait_job("run", "run")
    name, key = job["metadata"]["name"], "whetstone.dev/measured-target"
    measured = json.loads(job["metadata"]["annotations"][key])
    image = measured["engine"]["image"]
    told = eventually(lambda: serving.get(KIND, "run")["status"].get("target"), what="the target")
    assert told["engine"] == measured["engine"]
    assert json.loads(serving.get("ConfigMap", "run-config")["data"]["config.json"])["engine"] == measured["engine"]
    operator.kill()
    measured["engine"]["image"] = "engine:before"
    note = {"metadata": {"annotations": {key: json.dumps(measured)}}}
    serving.api.merge("Job", name, note, namespace=serving.namespace)
    serving.end_well(job, results=RESULTS)
    operator.start()
    serving.wait_reason(KIND, "run", "Succeeded", condition="Complete")
    for condition in ("Valid", "GatePassed"):
        told = serving.wait_reason(KIND, "run", "TargetChanged", condition=condition)
        assert told["status"] == "False"
        assert f"image engine:before -> {image}" in told["message"]
