"""Pushes: the third Job copies what is published, once the Secrets are there; the status says where it lies."""

import base64
import json
from typing import Any

import pytest
from integration.operator_process import OperatorProcess
from integration.world import ADAPTER, DATASET, DIGEST, World, user_error
from support.waiting import eventually

pytestmark = pytest.mark.integration
KIND = "LoRATrainingJob"
BUCKET = {"name": "bucket", "uri": "s3://adapters/a", "secretRef": {"name": "keys"}}
OUTPUT = {"adapter": {"uri": "pvc://adapters/a"}, "push": [BUCKET, {"name": "near", "uri": "pvc://shared/a"}]}
MERGED = {"uri": "pvc://models/merged", "digest": DIGEST, "bytes": 20}
PUSHED = [{"name": one["name"], "uri": one["uri"], "digest": DIGEST} for one in OUTPUT["push"]]


def secret(world: World, **keys: str) -> None:
    """Create the Secret, or replace its keys."""
    data = {key: base64.b64encode(value.encode()).decode() for key, value in keys.items()}
    if world.api.get("Secret", "keys", namespace=world.namespace) is None:
        made = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "data": data}
        world.api.create(made, namespace=world.namespace)
    else:
        world.api.merge("Secret", "keys", {"data": data}, namespace=world.namespace)


def train_until_push(world: World, output: dict[str, Any] = OUTPUT) -> dict[str, Any]:
    """Create a job with pushes and end what comes before them; return the Job that pushes."""
    world.claims()
    world.claims("shared")
    secret(world, AWS_ACCESS_KEY_ID="k", AWS_SECRET_ACCESS_KEY="s")
    world.train(output=output)
    world.end_well(world.wait_job("train", "prepare"), dataset=DATASET)
    world.end_well(world.wait_job("train", "train"), adapter=ADAPTER, metrics={"trainLoss": "0.5"})
    return world.wait_job("train", "merge")


def test_job_ends_only_when_all_is_pushed(world: World, operator: OperatorProcess) -> None:
    job = train_until_push(world)
    world.wait_reason(KIND, "train", "Pushing")
    container = job["spec"]["template"]["spec"]["containers"][0]
    mounts = {mount["mountPath"]: bool(mount.get("readOnly")) for mount in container["volumeMounts"]}
    config = json.loads(world.get("ConfigMap", "train-config")["data"]["config.json"])
    far, near = config["pushes"]
    assert (mounts[far["secretPath"]], far["what"], far["uri"]) == (True, "Adapter", BUCKET["uri"])
    assert mounts[near["path"].removesuffix("/a")] is False
    earlier = [one for one in world.jobs("train") if one["metadata"]["name"] != job["metadata"]["name"]]
    for one in earlier:
        volumes = one["spec"]["template"]["spec"]["volumes"]
        assert not [volume for volume in volumes if "secret" in volume]
    world.end_well(job, pushes=PUSHED)
    done = world.wait_reason(KIND, "train", "Succeeded", condition="Complete")
    assert "pushed to s3://adapters/a, pushed to pvc://shared/a" in done["message"]
    assert world.get(KIND, "train")["status"]["pushes"] == PUSHED


def test_missing_claim_secret_and_key_are_waited_for_before_anything_runs(
    world: World, operator: OperatorProcess
) -> None:
    world.claims()
    world.train(output=OUTPUT)
    told = world.wait_reason(KIND, "train", "ClaimNotFound")
    assert told["message"].startswith("spec.output.push[1].uri: PersistentVolumeClaim shared does not exist")
    world.claims("shared")
    told = world.wait_reason(KIND, "train", "SecretNotFound")
    assert told["message"].startswith("spec.output.push[0].secretRef: Secret keys does not exist")
    secret(world, AWS_ACCESS_KEY_ID="k")
    eventually(
        lambda: "has no key AWS_SECRET_ACCESS_KEY" in world.wait_reason(KIND, "train", "SecretNotFound")["message"],
        what="the missing key is named",
    )
    assert world.jobs("train") == []
    secret(world, AWS_ACCESS_KEY_ID="k", AWS_SECRET_ACCESS_KEY="s")
    world.wait_job("train", "prepare")


def test_push_that_fails_hides_nothing_of_what_is_done(world: World, operator: OperatorProcess) -> None:
    job = train_until_push(world, {**OUTPUT, "merged": {"uri": MERGED["uri"]}})
    done = {"merged": MERGED, "pushes": PUSHED[1:]}
    told = user_error("SourceForbidden", "spec.output.push[0] (bucket): refused")
    world.end_pod(job, told.model_copy(update={"result": done}))
    world.wait_reason(KIND, "train", "SourceForbidden", condition="Failed")
    status = world.get(KIND, "train")["status"]
    assert (status["adapter"], status["merged"], status["pushes"]) == (ADAPTER, MERGED, PUSHED[1:])


def fail_push(world: World, output: dict[str, Any] = OUTPUT, **result: Any) -> set[str]:
    """Let the push of a job fail; return the names of its Jobs."""
    told = user_error("SourceForbidden", "spec.output.push[0] (bucket): refused")
    world.end_pod(train_until_push(world, output), told.model_copy(update={"result": result}))
    world.wait_reason(KIND, "train", "SourceForbidden", condition="Failed")
    return {one["metadata"]["name"] for one in world.jobs("train")}


def retry(world: World) -> None:
    """Ask for another attempt, as a user does."""
    note = {"metadata": {"annotations": {"whetstone.dev/retry-requested-at": "now"}}}
    world.api.merge(KIND, "train", note, namespace=world.namespace)


def wait_fresh(world: World, stage: str, before: set[str]) -> dict[str, Any]:
    """Wait for the Job of a stage of the new attempt."""

    def found() -> dict[str, Any] | None:
        fresh = [one for one in world.jobs("train") if one["metadata"]["name"] not in before]
        return next((one for one in fresh if f"-{stage}-" in one["metadata"]["name"]), None)

    return eventually(found, what=f"another Job of stage {stage}")


def test_failed_push_is_retried_without_training(world: World, operator: OperatorProcess) -> None:
    # A pod of another release: what it says of the pushes is not understood, and the failure is told all the same.
    before = fail_push(world, pushes=[{"place": "near"}])
    assert world.get(KIND, "train")["status"]["adapter"] == ADAPTER
    retry(world)
    world.end_well(wait_fresh(world, "prepare", before), adapter=ADAPTER, adopted=True)
    world.end_well(wait_fresh(world, "merge", before), pushes=PUSHED)
    world.wait_reason(KIND, "train", "Adopted", condition="Complete")
    trained = [one for one in world.jobs("train") if one["metadata"]["labels"]["whetstone.dev/stage"] == "train"]
    assert {one["metadata"]["name"] for one in trained} <= before
    assert world.get(KIND, "train")["status"]["pushes"] == PUSHED


def test_what_is_published_stays_in_the_status_while_a_retry_runs(world: World, operator: OperatorProcess) -> None:
    before = fail_push(world, {**OUTPUT, "merged": {"uri": MERGED["uri"]}}, merged=MERGED, pushes=PUSHED[1:])
    retry(world)
    prepare = wait_fresh(world, "prepare", before)
    world.wait_reason(KIND, "train", "Preparing")
    status = world.get(KIND, "train")["status"]
    assert (status["adapter"], status["merged"], status["pushes"]) == (ADAPTER, MERGED, PUSHED[1:])
    assert not {"finishedAt", "metrics"} & set(status)
    world.end_pod(prepare, user_error("DatasetInvalid", "the file is another one by now"))
    world.wait_reason(KIND, "train", "DatasetInvalid", condition="Failed")
    assert world.get(KIND, "train")["status"]["adapter"] == ADAPTER


def test_what_a_retry_does_not_find_any_more_leaves_the_status(world: World, operator: OperatorProcess) -> None:
    before = fail_push(world)
    retry(world)
    world.end_well(wait_fresh(world, "prepare", before), dataset=DATASET)
    world.wait_reason(KIND, "train", "Training")
    assert "adapter" not in world.get(KIND, "train")["status"]


@pytest.mark.parametrize(("stage", "lost"), [("prepare", "adapter"), ("merge", "merged")])
def test_what_somebody_else_has_put_there_since_is_not_taken_for_the_result(
    world: World, operator: OperatorProcess, stage: str, lost: str
) -> None:
    before = fail_push(world, {**OUTPUT, "merged": {"uri": MERGED["uri"]}}, merged=MERGED)
    assert lost in world.get(KIND, "train")["status"]
    retry(world)
    if stage == "merge":
        world.end_well(wait_fresh(world, "prepare", before), adapter=ADAPTER, adopted=True)
    world.end_pod(wait_fresh(world, stage, before), user_error("OutputOccupied", "another recipe's"))
    world.wait_reason(KIND, "train", "OutputOccupied", condition="Failed")
    assert {"adapter", "merged"} - set(world.get(KIND, "train")["status"]) == {lost}
