"""`examples/tooluse` on the node with a real model: expert, SFT, informed expert, DPO, benchmarks; by its one command.

Structure only. So small a model, trained for two steps, solves next to nothing.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.company import FOLDER, rendered
from support.loop import READY_SECONDS, Seeded
from support.waiting import eventually, machine_factor
from whetstone_api.adapter_artifact import LINEAGE_FILE
from whetstone_dev.cluster import Cluster
from whetstone_dev.demo import plan
from whetstone_dev.demo.watch import is_true

pytestmark = [pytest.mark.cluster, pytest.mark.long]
INSTANCES = {"train.json": 4, "test.json": 3}
LOOP_SECONDS = 1500.0
STEPS = 2


def fitted(image: str) -> list[dict[str, Any]]:
    """Return the manifests for this machine, with as little to do as shows the way of the rows."""
    ours, others = [], []
    for obj in rendered(image):
        (ours if obj["apiVersion"].startswith("whetstone") else others).append(obj)
    manifests = plan.fit_to_cpu(ours, plan.SMALL)
    for obj in manifests:
        spec = obj["spec"]
        if obj["kind"] == "BenchmarkRun":
            suite = spec["suite"]["toolUse"]
            suite["instances"]["limit"] = INSTANCES[suite["instances"]["file"]]
            suite |= {"horizon": 3, "observationCharacters": 400}
            spec["agent"] = {"parameters": {"maxTokens": 24}}
        if obj["kind"] == "LoRATrainingJob":
            del spec["hyperparameters"]["epochs"]
            spec["hyperparameters"] |= {"maxSteps": STEPS, "batchSize": 1, "maxLength": 2048}
            spec["preparation"] = {"tooLong": "Truncate"}
    return [*others, *manifests]


@pytest.fixture(scope="module")
def table(seeded: Seeded, images: dict[str, str], kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the example's command prints at its end."""
    folder = tmp_path_factory.mktemp("tooluse")
    # As JSON: kubectl and PyYAML do not agree whether 1e-4 is a number.
    (folder / "all.yaml").write_text("\n---\n".join(json.dumps(obj) for obj in fitted(images["benchmark"])))
    (folder / "kustomization.yaml").write_text("resources: [all.yaml]\n")
    environment = {
        **os.environ,
        "KUBECONFIG": str(kubeconfig.absolute()),
        "KUBECTL": str(Cluster().plane.kubectl),
        "NAMESPACE": seeded.namespace,
    }
    command = [FOLDER / "run.sh", folder]
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=LOOP_SECONDS * machine_factor()
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module", autouse=True)
def removed(seeded: Seeded, images: dict[str, str]) -> Iterator[None]:
    """Remove all of it afterwards."""
    yield
    for obj in fitted(images["benchmark"]):
        seeded.kube.delete(obj["apiVersion"], obj["kind"], name=obj["metadata"]["name"], namespace=seeded.namespace)
    eventually(lambda: not seeded.pods("model-server", "tool-user"), what="the server is gone", seconds=READY_SECONDS)


def lineage(seeded: Seeded, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((seeded.host_folder("adapters") / name / LINEAGE_FILE).read_text())
    return found


def test_one_command_goes_the_whole_way_and_prints_success_with_intervals(table: str, seeded: Seeded) -> None:
    lines = [line.split() for line in table.splitlines() if line.startswith(("RUN", "company-"))]
    assert lines[0] == ["RUN", "TASKS", "SUCCESS", "LOW", "HIGH", "VOID", "VERDICT"]
    rows = {line[0]: line[1:] for line in lines[1:]}
    assert list(rows) == ["company-base", "company-sft", "company-dpo"]
    for name, (tasks, success, low, high, void, _) in rows.items():
        assert (tasks, void) == (str(INSTANCES["test.json"]), "0"), name
        assert float(low) <= float(success) <= float(high)
        assert is_true(seeded.get("BenchmarkRun", name), "Valid")


def test_each_training_learned_from_the_run_before_it(table: str, seeded: Seeded) -> None:
    for run, kind, job in (("company-expert", "sft", "company-sft"), ("company-informed", "preference", "company-dpo")):
        collected = seeded.get("BenchmarkRun", run)["status"]["collected"][kind]
        assert collected["rows"] > 0
        [dataset] = lineage(seeded, job)["datasets"]
        assert (dataset["digest"], dataset["rows"]) == (collected["digest"], collected["rows"])
    sft, dpo = (
        seeded.get("BenchmarkRun", name)["status"]["target"]["digest"] for name in ("company-sft", "company-dpo")
    )
    assert sft != dpo
    assert dpo == seeded.get("LoRATrainingJob", "company-dpo")["status"]["adapter"]["digest"]
