"""BenchmarkRuns with a `toolUse` suite on the node: the company's service in a pod."""

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
