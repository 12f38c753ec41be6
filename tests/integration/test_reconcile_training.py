"""The real operator against a real API server: LoRATrainingJobs from any order of events to their end."""

import json

import pytest
from integration.operator_process import OperatorProcess
from integration.world import ADAPTER, DATASET, RESULTS, TRAINING_SPEC, World, user_error
from support.waiting import eventually

pytestmark = pytest.mark.integration
KIND = "LoRATrainingJob"


ESTIMATE = {"memory": "9.18Gi", "least": "7.15Gi", "plan": "micro-batch 4", "basis": [{"name": "weights", "bytes": 7}]}
PLAN = {"microBatchSize": 4, "gradientCheckpointing": False, "packing": "Padded", "attention": "sdpa"} | {
    "compiled": False,
    "reason": "9.18Gi is estimated, 78.00Gi are free",
}


def test_training_ends_with_the_published_adapter(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.train()
    world.end_well(world.wait_job("train", "prepare"), dataset=DATASET, estimate=ESTIMATE)
    training = world.wait_job("train", "train")
    eventually(lambda: world.get(KIND, "train")["status"].get("estimate") == ESTIMATE, what="the estimate")
    world.end_well(training, adapter=ADAPTER, metrics={"trainLoss": "0.5"}, plan=PLAN)
    complete = world.wait_reason(KIND, "train", "Succeeded", condition="Complete")
    status = world.get(KIND, "train")["status"]
    assert complete["status"] == "True"
    assert status["adapter"] == ADAPTER
    assert status["dataset"] == DATASET
    assert (status["estimate"], status["plan"]) == (ESTIMATE, PLAN)
    assert status["metrics"] == {"trainLoss": "0.5"}
    assert {one["type"] for one in status["conditions"]} == {"Ready", "Complete"}
    assert all(one["observedGeneration"] == 1 for one in status["conditions"])
    world.wait_events("Preparing", "Training", "Succeeded")


PUBLISHED = {"phase": "Publish", "adapter": ADAPTER}


def test_reported_publication_is_taken_over_before_the_pod_ends(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.train()
    world.end_well(world.wait_job("train", "prepare"), dataset=DATASET)
    job = world.wait_job("train", "train")
    pod = eventually(lambda: world.pods(job), what="a pod")[0]
    path = f"loratrainingjobs/{world.namespace}/train"
    elsewhere = {**PUBLISHED, "adapter": {**ADAPTER, "uri": "pvc://adapters/other"}}
    assert operator.report(path, token=world.pod_token(pod), body=elsewhere) == 202
    eventually(lambda: world.get(KIND, "train")["status"].get("progress", {}).get("phase") == "Publish", what="heard")
    assert "adapter" not in world.get(KIND, "train")["status"]
    assert operator.report(path, token=world.pod_token(pod), body=PUBLISHED) == 202
    eventually(lambda: world.get(KIND, "train")["status"].get("adapter") == ADAPTER, what="the adapter")
    assert world.condition(KIND, "train", "Complete") is None
    operator.kill()
    operator.start()
    corrected = {**ADAPTER, "digest": "sha256:" + "b" * 64}
    world.end_well(job, adapter=corrected, metrics={})
    world.wait_reason(KIND, "train", "Succeeded", condition="Complete")
    assert world.get(KIND, "train")["status"]["adapter"] == corrected


def test_reported_publication_of_a_job_that_fails_is_taken_back(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.train()
    world.end_well(world.wait_job("train", "prepare"), dataset=DATASET)
    job = world.wait_job("train", "train")
    pod = eventually(lambda: world.pods(job), what="a pod")[0]
    path = f"loratrainingjobs/{world.namespace}/train"
    assert operator.report(path, token=world.pod_token(pod), body=PUBLISHED) == 202
    eventually(lambda: world.get(KIND, "train")["status"].get("adapter") == ADAPTER, what="the adapter")
    world.end_pod(job, user_error("TrainingDiverged", "spoiled"))
    world.wait_reason(KIND, "train", "TrainingDiverged", condition="Failed")
    assert "adapter" not in world.get(KIND, "train")["status"]


def test_job_goes_on_from_the_adapter_of_another_once_that_has_ended(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.train("second", initAdapter={"trainingJobRef": {"name": "train"}}, output={"adapter": {"uri": "pvc://x/b"}})
    told = world.wait_reason(KIND, "second", "ReferenceNotFound")
    assert told["message"].startswith("spec.initAdapter.trainingJobRef.name: LoRATrainingJob train does not exist")
    world.train()
    world.wait_reason(KIND, "second", "ReferenceNotReady")
    world.end_well(world.wait_job("train", "prepare"), dataset=DATASET)
    world.end_well(world.wait_job("train", "train"), adapter=ADAPTER, metrics={})
    told = world.wait_reason(KIND, "second", "ClaimNotFound")
    assert "spec.output.adapter.uri: PersistentVolumeClaim x" in told["message"]
    world.claims("x")
    job = world.wait_job("second", "prepare")
    config = world.get("ConfigMap", "second-config")
    assert json.loads(config["data"]["config.json"])["initAdapterSource"] == ADAPTER["uri"]
    mounts = {one["name"]: one for one in job["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]}
    assert mounts["claim-adapters"]["readOnly"]


def test_adapter_of_another_job_can_be_the_reference(world: World, operator: OperatorProcess) -> None:
    world.claims()
    reference = {"adapter": {"trainingJobRef": {"name": "train"}}, "model": {"uri": "pvc://absent/m"}}
    place = {"adapter": {"uri": "pvc://adapters/b"}}
    world.train("second", method="DPO", preference={"reference": reference}, output=place)
    told = world.wait_reason(KIND, "second", "ReferenceNotFound")
    assert told["message"].startswith("spec.preference.reference.adapter.trainingJobRef.name: LoRATrainingJob train")
    world.train()
    world.end_well(world.wait_job("train", "prepare"), dataset=DATASET)
    world.end_well(world.wait_job("train", "train"), adapter=ADAPTER, metrics={})
    told = world.wait_reason(KIND, "second", "ClaimNotFound")
    assert "spec.preference.reference.model (pvc://absent/m): PersistentVolumeClaim absent" in told["message"]
    world.claims("absent")
    world.end_well(world.wait_job("second", "prepare"), dataset=DATASET)
    mounts = world.wait_job("second", "train")["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    assert {one["name"]: one.get("readOnly") for one in mounts}["claim-absent"]
    config = json.loads(world.get("ConfigMap", "second-config")["data"]["config.json"])
    assert config["reference"]["adapterSource"] == ADAPTER["uri"]


def test_failed_job_to_go_on_from_is_told(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.train()
    world.end_pod(world.wait_job("train", "prepare"), user_error("DatasetInvalid", "row 1"))
    world.wait_reason(KIND, "train", "DatasetInvalid", condition="Failed")
    world.train("second", initAdapter={"trainingJobRef": {"name": "train"}}, output={"adapter": {"uri": "pvc://x/b"}})
    world.wait_reason(KIND, "second", "ReferenceFailed")


def test_missing_claim_is_named_and_waited_for(world: World, operator: OperatorProcess) -> None:
    world.claims("models", "workspace", "adapters")
    world.train()
    ready = world.wait_reason(KIND, "train", "ClaimNotFound")
    assert "spec.datasets[0].source.uri: PersistentVolumeClaim data does not exist" in ready["message"]
    assert world.condition(KIND, "train", "Reconciling") is not None
    assert world.jobs("train") == []
    world.claims("data")
    world.wait_job("train", "prepare")


def test_missing_config_map_and_key_are_named(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.train(datasets=[{"name": "d", "configMapRef": {"name": "rows", "key": "train.jsonl"}}])
    ready = world.wait_reason(KIND, "train", "ConfigMapNotFound")
    assert "spec.datasets[0].configMapRef.name: ConfigMap rows does not exist" in ready["message"]
    rows = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "rows"}, "data": {"other.jsonl": "{}"}}
    world.api.create(rows, namespace=world.namespace)
    eventually(
        lambda: (
            "has no key train.jsonl (its keys: other.jsonl)"
            in world.wait_reason(KIND, "train", "ConfigMapNotFound")["message"]
        ),
        what="the missing key is named",
    )
    world.api.merge("ConfigMap", "rows", {"data": {"train.jsonl": "{}"}}, namespace=world.namespace)
    world.wait_job("train", "prepare")


def test_objects_applied_in_the_wrong_order_converge(world: World, operator: OperatorProcess) -> None:
    world.train(baseModel={"modelServerRef": {"name": "server"}})
    ready = world.wait_reason(KIND, "train", "ReferenceNotFound")
    assert "spec.baseModel.modelServerRef.name: ModelServer server does not exist" in ready["message"]
    world.create("ModelServer", "server", {"model": {"source": {"uri": "pvc://models/base"}, "servedName": "base"}})
    world.wait_reason(KIND, "train", "ClaimNotFound")
    world.claims()
    world.wait_job("train", "prepare")


def test_rank_above_the_servers_limit_fails_before_any_job(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.create("ModelServer", "server", {"model": {"source": {"uri": "pvc://models/base"}, "servedName": "base"}})
    world.train(baseModel={"modelServerRef": {"name": "server"}}, lora={"rank": 32})
    failed = world.wait_reason(KIND, "train", "RankNotServable", condition="Failed")
    assert "spec.lora.rank: 32 is above spec.adapterCapacity.maxRank (16) of ModelServer server" in failed["message"]
    assert world.condition(KIND, "train", "Stalled") is not None
    assert world.jobs("train") == []


def test_bad_data_fails_at_once_and_a_retry_starts_a_new_job(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.train()
    first = world.wait_job("train", "prepare")
    words = "spec.datasets[0].source.uri (pvc://data/train.jsonl): row 3 has no assistant turn; add one"
    world.end_pod(first, user_error("DatasetInvalid", words))
    failed = world.wait_reason(KIND, "train", "DatasetInvalid", condition="Failed")
    assert failed["message"] == words
    assert len(world.pods(first)) == 1
    note = {"metadata": {"annotations": {"whetstone.dev/retry-requested-at": "now"}}}
    world.api.merge(KIND, "train", note, namespace=world.namespace)
    eventually(lambda: len(world.jobs("train")) == 2, what="a second Job")
    second = next(job for job in world.jobs("train") if job["metadata"]["uid"] != first["metadata"]["uid"])
    world.end_well(second, dataset=DATASET)
    world.end_well(world.wait_job("train", "train"), adapter=ADAPTER, adopted=True)
    world.wait_reason(KIND, "train", "Adopted", condition="Complete")
    assert world.get(KIND, "train")["status"]["handledRetry"] == "now"


def test_suspended_job_runs_nothing_until_it_may(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.train(suspend=True)
    world.wait_reason(KIND, "train", "Suspended", condition="Suspended")
    assert all(job["spec"]["suspend"] for job in world.jobs("train"))
    world.api.merge(KIND, "train", {"spec": {"suspend": False}}, namespace=world.namespace)
    job = world.wait_job("train", "prepare")
    eventually(lambda: world.pods(job), what="a pod")
    world.api.merge(KIND, "train", {"spec": {"suspend": True}}, namespace=world.namespace)
    world.wait_reason(KIND, "train", "Suspended", condition="Suspended")
    eventually(lambda: not world.pods(job), what="the pod of the suspended Job is gone")


def test_deleted_children_come_back(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.train()
    job = world.wait_job("train", "prepare")
    config = world.get("ConfigMap", "train-config")
    world.api.delete("ConfigMap", "train-config", namespace=world.namespace)
    world.api.delete("Job", job["metadata"]["name"], namespace=world.namespace)
    old = {job["metadata"]["uid"], config["metadata"]["uid"]}
    eventually(lambda: world.jobs("train") and world.jobs("train")[0]["metadata"]["uid"] not in old, what="a new Job")
    eventually(lambda: world.get("ConfigMap", "train-config")["metadata"]["uid"] not in old, what="a new ConfigMap")


def test_deleting_the_object_removes_its_children(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.train()
    world.wait_job("train", "prepare")
    world.api.delete(KIND, "train", namespace=world.namespace)
    eventually(lambda: world.api.get(KIND, "train", namespace=world.namespace) is None, what="the object is gone")
    eventually(lambda: not world.api.list("Job", namespace=world.namespace), what="the Jobs are gone")
    eventually(
        lambda: world.api.get("ConfigMap", "train-config", namespace=world.namespace) is None,
        what="the ConfigMap is gone",
    )


def test_kill_at_every_stage_loses_nothing_and_starts_nothing_twice(world: World, operator: OperatorProcess) -> None:
    world.claims()
    operator.kill()
    world.train()
    operator.start()
    prepare = world.wait_job("train", "prepare")
    operator.kill()
    world.end_well(prepare, dataset=DATASET)
    operator.start()
    train = world.wait_job("train", "train")
    operator.kill()
    operator.start()
    world.wait_reason(KIND, "train", "Training")
    operator.kill()
    world.end_well(train, adapter=ADAPTER)
    operator.start()
    world.wait_reason(KIND, "train", "Succeeded", condition="Complete")
    uids = [job["metadata"]["uid"] for job in world.jobs("train")]
    assert sorted(uids) == sorted([prepare["metadata"]["uid"], train["metadata"]["uid"]])
    assert world.get(KIND, "train")["status"]["adapter"] == ADAPTER


@pytest.mark.parametrize("claims", [True, False], ids=["at work", "waiting"])
def test_status_is_silent_at_rest(world: World, operator: OperatorProcess, claims: bool) -> None:
    if claims:
        world.claims()
    world.train()
    world.wait_reason(KIND, "train", "Preparing" if claims else "ClaimNotFound")
    for number in range(5):
        before = operator.metric("whetstone_reconcile_total", controller="loratrainingjobs")
        note = {"metadata": {"annotations": {"example.com/touched": str(number)}}}
        version = world.api.merge(KIND, "train", note, namespace=world.namespace)["metadata"]["resourceVersion"]
        eventually(
            lambda before=before: operator.metric("whetstone_reconcile_total", controller="loratrainingjobs") > before,
            what="a reconcile",
        )
        assert number == 0 or world.get(KIND, "train")["metadata"]["resourceVersion"] == version


def test_a_namesake_never_takes_over_an_old_job(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.train()
    old = world.wait_job("train", "prepare")
    world.api.delete(KIND, "train", namespace=world.namespace)
    eventually(lambda: world.api.get(KIND, "train", namespace=world.namespace) is None, what="the object is gone")
    world.create(KIND, "train", TRAINING_SPEC)
    eventually(
        lambda: [job for job in world.jobs("train") if job["metadata"]["name"] != old["metadata"]["name"]],
        what="a Job of the new object",
    )


def test_operator_ends_cleanly_on_sigterm(world: World, operator: OperatorProcess) -> None:
    assert operator.stop() == 0


def test_secret_of_a_dataset_is_waited_for_before_anything_runs(world: World, operator: OperatorProcess) -> None:
    world.claims()
    source = {"uri": "https://example.com/rows.jsonl", "secretRef": {"name": "data-keys"}}
    world.train(datasets=[{"name": "far", "source": source}])
    told = world.wait_reason(KIND, "train", "SecretNotFound")
    assert told["message"].startswith("spec.datasets[0].source.secretRef: Secret data-keys does not exist")
    assert world.jobs("train") == []
    world.api.create(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "data-keys"}, "stringData": {"token": "t"}},
        namespace=world.namespace,
    )
    world.wait_job("train", "prepare")


ROWS = {"sft": {"uri": "pvc://results/run/collect/sft-0.jsonl", "digest": "sha256:" + "c" * 64, "rows": 3}}
COLLECTING = {"agent": {"name": "oracle"}, "collect": {"sft": {}}}
FROM_RUN = [{"name": "d", "benchmarkRunRef": {"name": "run"}}]


def test_rows_of_a_run_are_waited_for_and_pinned(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.train(datasets=FROM_RUN)
    told = world.wait_reason(KIND, "train", "ReferenceNotFound")
    assert told["message"].startswith("spec.datasets[0].benchmarkRunRef.name: BenchmarkRun run does not exist")
    world.benchmark(**COLLECTING)
    world.wait_reason(KIND, "train", "ReferenceNotReady")
    world.account()
    world.serve()
    world.start_engines()
    world.end_well(world.wait_job("run", "run"), results=RESULTS, collected=ROWS)
    prepare = world.wait_job("train", "prepare")
    assert world.get("BenchmarkRun", "run")["status"]["collected"] == ROWS
    dataset = json.loads(world.get("ConfigMap", "train-config")["data"]["config.json"])["datasets"][0]
    assert dataset["path"] == "/mnt/claims/results/run/collect/sft-0.jsonl"
    assert dataset["digest"] == ROWS["sft"]["digest"]
    mounts = {one["name"]: one for one in prepare["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]}
    assert mounts["claim-results"]["readOnly"]
    # What a started job learns from stays, whatever becomes of the run.
    world.api.delete("BenchmarkRun", "run", namespace=world.namespace)
    world.end_well(prepare, dataset=DATASET)
    mounts = world.wait_job("train", "train")["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    assert "claim-results" in {one["name"] for one in mounts}


@pytest.mark.parametrize(
    ("ending", "reason", "words"),
    [
        ({"results": {**RESULTS, "void": 8}, "collected": ROWS}, "ReferenceFailed", "run is not Valid"),
        ({"results": RESULTS}, "ReferenceFailed", "did not collect rows of kind SFT"),
        ({"results": RESULTS, "collected": {"sft": {**ROWS["sft"], "rows": 0}}}, "DatasetEmpty", "no row of kind SFT"),
    ],
)
def test_run_that_nothing_can_be_learned_from_is_refused(
    world: World, operator: OperatorProcess, ending: dict[str, object], reason: str, words: str
) -> None:
    world.claims()
    world.account()
    world.serve()
    world.start_engines()
    world.benchmark(**COLLECTING)
    world.end_well(world.wait_job("run", "run"), **ending)
    world.train(datasets=FROM_RUN)
    assert words in world.wait_reason(KIND, "train", reason)["message"]
    assert world.jobs("train") == []
