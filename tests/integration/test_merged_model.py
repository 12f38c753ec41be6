"""A merged model: made after the adapter is published, served by reference, kept when its job is gone."""

import json
from typing import Any

import pytest
from integration.operator_process import OperatorProcess
from integration.world import ADAPTER, DATASET, DIGEST, World, user_error
from support.waiting import eventually

pytestmark = pytest.mark.integration
OUTPUT = {"adapter": {"uri": "pvc://adapters/a"}, "merged": {"uri": "pvc://models/merged"}}
MERGED = {"uri": "pvc://models/merged", "digest": DIGEST, "bytes": 20}
REFERENCE = {"trainingJobRef": {"name": "train"}, "servedName": "base"}


def train_until_merge(world: World, **adopted: Any) -> dict[str, Any]:
    """Create a job that asks for a merged model and end what comes before the merge; return the Job of the merge."""
    world.train(output=OUTPUT)
    result = {"adapter": ADAPTER, "metrics": {"trainLoss": "0.5"}, "warnings": ["tracker wandb failed"]}
    if adopted:
        world.end_well(world.wait_job("train", "prepare"), **result, **adopted)
    else:
        world.end_well(world.wait_job("train", "prepare"), dataset=DATASET)
        world.end_well(world.wait_job("train", "train"), **result)
    return world.wait_job("train", "merge")


def engine(world: World) -> dict[str, Any]:
    """Return the engine's container of the server."""
    deployment = eventually(
        lambda: world.api.get("Deployment", "server-engine", namespace=world.namespace), what="the Deployment"
    )
    containers = deployment["spec"]["template"]["spec"]["containers"]
    return next(one for one in containers if one["name"] == "engine")


def test_job_ends_only_with_its_merged_model(world: World, operator: OperatorProcess) -> None:
    world.claims()
    merge = train_until_merge(world)
    world.wait_reason("LoRATrainingJob", "train", "Merging")
    assert world.get("LoRATrainingJob", "train")["status"]["adapter"] == ADAPTER
    mounts = {mount["name"]: mount for mount in merge["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]}
    assert not mounts["claim-models"].get("readOnly")
    world.end_well(merge, merged=MERGED)
    world.wait_reason("LoRATrainingJob", "train", "Succeeded", condition="Complete")
    status = world.get("LoRATrainingJob", "train")["status"]
    assert status["warnings"] == ["tracker wandb failed"]
    assert (status["merged"], status["adapter"], status["metrics"]) == (MERGED, ADAPTER, {"trainLoss": "0.5"})


def test_adopted_adapter_is_merged_without_training(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.end_well(train_until_merge(world, adopted=True), merged=MERGED)
    world.wait_reason("LoRATrainingJob", "train", "Adopted", condition="Complete")
    assert {job["metadata"]["labels"]["whetstone.dev/stage"] for job in world.jobs("train")} == {"prepare", "merge"}


def test_merge_that_fails_leaves_the_adapter_published(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.end_pod(train_until_merge(world), user_error("MergeDiverged", "misses the effect"))
    world.wait_reason("LoRATrainingJob", "train", "MergeDiverged", condition="Failed")
    assert world.get("LoRATrainingJob", "train")["status"]["adapter"] == ADAPTER


def test_server_waits_for_the_model_and_keeps_it_when_the_job_is_gone(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve(model=REFERENCE)
    told = world.wait_reason("ModelServer", "server", "ReferenceNotFound")
    assert told["message"].startswith("spec.model.trainingJobRef.name: LoRATrainingJob train does not exist")
    merge = train_until_merge(world)
    world.wait_reason("ModelServer", "server", "ReferenceNotReady")
    world.end_well(merge, merged=MERGED)
    assert engine(world)["args"][0].endswith("/models/merged")
    eventually(lambda: "model" in world.get("ModelServer", "server")["status"], what="the model is recorded")
    world.api.delete("LoRATrainingJob", "train", namespace=world.namespace)
    operator.kill()
    operator.start()
    eventually(lambda: world.condition("ModelServer", "server", "Ready") is not None, what="the server judged")
    recorded = {"trainingJob": "train", "source": MERGED["uri"], "digest": DIGEST}
    assert world.get("ModelServer", "server")["status"]["model"] == recorded
    assert engine(world)["args"][0].endswith("/models/merged")


def test_job_that_makes_no_merged_model_is_named(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.train()
    world.serve(model=REFERENCE)
    told = world.wait_reason("ModelServer", "server", "InvalidSpec")
    assert "spec.output.merged" in told["message"]


def test_training_on_a_server_of_a_merged_model_takes_that_model(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve(model=REFERENCE)
    world.end_well(train_until_merge(world), merged=MERGED)
    eventually(lambda: world.get("ModelServer", "server")["status"].get("model"), what="the model recorded")
    world.train("second", baseModel={"modelServerRef": {"name": "server"}}, output={"adapter": {"uri": "pvc://a/b"}})
    world.claims("a")
    world.wait_job("second", "prepare")
    config = world.api.get("ConfigMap", "second-config", namespace=world.namespace)
    assert config is not None
    assert json.loads(config["data"]["config.json"])["baseModelSource"] == MERGED["uri"]
