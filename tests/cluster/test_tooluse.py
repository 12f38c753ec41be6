"""BenchmarkRuns with a `toolUse` suite on the node: the company's service in a pod, and a model that knows nothing."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.company import rendered
from support.obedient_runs import RUN_SECONDS, SERVER, Runs
from support.waiting import eventually
from whetstone_dev.demo.watch import condition, is_true

pytestmark = pytest.mark.cluster
INSTANCES = 6


@pytest.fixture(scope="module")
def company(runs: Runs) -> Iterator[Runs]:
    """The company's service, and its files in the claim `data`."""
    manifests = [obj for obj in rendered(runs.images["benchmark"]) if not obj["apiVersion"].startswith("whetstone")]
    for obj in manifests:
        runs.kube.apply(obj, namespace=runs.namespace)

    def there() -> bool:
        job = runs.kube.get("batch/v1", "Job", name="company-files", namespace=runs.namespace)
        service = runs.kube.get("apps/v1", "Deployment", name="company", namespace=runs.namespace)
        assert job is not None
        assert service is not None
        return bool(job.get("status", {}).get("succeeded") and service["status"].get("readyReplicas"))

    eventually(there, what="the company's service and files", seconds=RUN_SECONDS)
    yield runs
    for obj in manifests:
        runs.kube.delete(obj["apiVersion"], obj["kind"], name=obj["metadata"]["name"], namespace=runs.namespace)


def spec(name: str, *, suite: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    asked = {
        "environment": {"uri": "pvc://data/company"},
        "instances": {"file": "test.json", "limit": INSTANCES},
        "protocol": "Text",
        "api": {"url": "http://company:8080", "secretRef": {"name": "company", "key": "token"}},
        **(suite or {}),
    }
    return {
        "target": {"modelServerRef": {"name": SERVER}},
        "suite": {"toolUse": asked},
        "output": {"uri": f"pvc://results/{name}"},
        "resources": {"requests": {"cpu": "50m", "memory": "256Mi"}},
        **fields,
    }


def test_an_experts_run_calls_the_service_and_leaves_training_rows(company: Runs) -> None:
    gates = [{"metric": "Mean", "minimum": "0"}]
    asked = spec("expert", suite={"expert": {"mode": "GroundTruth"}}, collect={"sft": {}}, gates=gates)
    company.apply("BenchmarkRun", "expert", asked)
    run = company.end("expert")
    results = run["status"]["results"]
    assert (results["mean"], results["trials"], results["void"]) == ("1", INSTANCES, 0)
    assert results["expertSteps"] > INSTANCES
    assert is_true(run, "Valid")
    gate = condition(run, "GatePassed")
    assert gate is not None
    assert gate["reason"] == "ExpertAssisted"
    told = run["status"]["collected"]["sft"]
    rows = company.host_folder("results") / told["uri"].removeprefix("pvc://results/")
    assert len(rows.read_text().splitlines()) == told["rows"] == INSTANCES
    assert company.trial_pods("expert") == []


def test_a_model_is_asked_through_its_guard_by_all_shards(company: Runs) -> None:
    company.apply("BenchmarkRun", "model", spec("model", shards=2, concurrency=2))
    run = company.end("model")
    results = run["status"]["results"]
    assert (results["trials"], results["void"]) == (INSTANCES, 0)
    artifact = company.artifact("model")
    # The same useless reply three times in a row ends a trial.
    assert [task["trials"][0]["turns"] for task in artifact["tasks"]] == [3] * INSTANCES
    assert artifact["toolUse"]["ends"] == {"Loop": INSTANCES}
    assert artifact["toolUse"]["expertSteps"] == 0
    folder = company.host_folder("results") / "model"
    assert len(list(folder.glob("episodes/*/*/episode.json"))) == INSTANCES
    assert "Malformed" in (folder / "report.html").read_text()


def test_a_wrong_key_of_the_service_makes_trials_void_and_the_run_invalid(company: Runs) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "wrong"}, "stringData": {"token": "no"}}
    company.kube.apply(secret, namespace=company.namespace)
    api = {"url": "http://company:8080", "secretRef": {"name": "wrong", "key": "token"}}
    asked = spec("refused", suite={"api": api, "expert": {"mode": "GroundTruth"}})
    asked["suite"]["toolUse"]["instances"] = {"file": "test.json", "include": ["email-*-0"], "limit": 1}
    company.apply("BenchmarkRun", "refused", asked)
    run = company.end("refused")
    assert run["status"]["results"]["void"] == 1
    valid = condition(run, "Valid")
    assert valid is not None
    assert valid["reason"] == "TooManyErrors"
