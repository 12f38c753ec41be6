"""The Jobs that run-to-end objects start."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from whetstone_api.access import API_KEY_VARIABLE
from whetstone_api.benchmark_discipline import DisciplineRules
from whetstone_api.benchmark_target import MeasuredTarget
from whetstone_api.benchmarkrun import BenchmarkRun
from whetstone_api.jobs import BenchmarkConfig, TrainingConfig
from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.source import Source
from whetstone_operator.resources.benchmark import BenchmarkPlan, benchmark_config_map, benchmark_job, run_job_name
from whetstone_operator.resources.overlay import OverlayError
from whetstone_operator.resources.training import (
    MERGE,
    PREPARE,
    TRAIN,
    TrainingPlan,
    stage_job_name,
    training_config,
    training_config_map,
    training_job,
)
from whetstone_operator.runtime.outcome import Stalled
from whetstone_operator.settings import Settings

SETTINGS = Settings(
    server_image="r/server:1", trainer_image="r/trainer:1", benchmark_image="r/benchmark:1", operator_url="http://op"
)
UID = "12345678-9abc-def0-1234-56789abcdef0"


def make_training(*, uid: str = UID, **spec: Any) -> LoRATrainingJob:
    return LoRATrainingJob.model_validate(
        {
            "metadata": {"name": "t", "namespace": "n", "uid": uid},
            "spec": {
                "baseModel": {"modelServerRef": {"name": "m"}},
                "datasets": [
                    {"name": "a", "source": {"uri": "pvc://data/a.jsonl"}},
                    {"name": "b", "configMapRef": {"name": "rows", "key": "b.jsonl"}},
                ],
                "workspace": {"claimName": "work"},
                "output": {"adapter": {"uri": "pvc://adapters/t"}},
                **spec,
            },
        }
    )


def make_training_plan(job: LoRATrainingJob, retry: str | None = None) -> TrainingPlan:
    return TrainingPlan(job=job, base=Source(uri="pvc://models/m"), init=None, settings=SETTINGS, retry=retry)


def make_benchmark_plan(*, adapter: bool = True, sandbox: str = "Pod") -> BenchmarkPlan:
    run = BenchmarkRun.model_validate(
        {
            "metadata": {"name": "b", "namespace": "n", "uid": UID},
            "spec": {
                "target": {"modelServerRef": {"name": "m"}},
                "suite": {"harbor": {"dataset": {"uri": "pvc://data/tasks"}, "environment": {"kind": sandbox}}},
                "baselineRef": {"name": "base"},
                "output": {"uri": "pvc://results/b"},
            },
        }
    )
    return BenchmarkPlan(
        run=run,
        target=MeasuredTarget(served_name="tools--abababab", adapter="tools", digest="sha256:ab"),
        server_url="http://m.n.svc/v1",
        adapter_source=Source(uri="pvc://adapters/tools") if adapter else None,
        baseline_output=Source(uri="pvc://results/base"),
        settings=SETTINGS,
        retry=None,
    )


def pod_of(job: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = job["spec"]["template"]["spec"]
    return spec


def mounts_of(job: dict[str, Any]) -> dict[str, bool]:
    mounts = pod_of(job)["containers"][0]["volumeMounts"]
    return {mount["mountPath"]: bool(mount.get("readOnly")) for mount in mounts}


OF_POD = {"/etc/whetstone", "/tmp", "/dev/shm", "/var/run/secrets/whetstone"}
STAGE_MOUNTS = {
    "prepare": {"claims/models": True, "claims/data": True, "configmaps/rows": True, "claims/adapters": True}
    | {"claims/work": False},
    "train": {"claims/models": True, "claims/data": True, "configmaps/rows": True}
    | {"claims/work": False, "claims/adapters": False},
    "merge": {"claims/models": True, "claims/adapters": True, "claims/merged": False},
}
"""What each stage mounts under /mnt, and whether only to read."""


@pytest.mark.parametrize("stage", STAGE_MOUNTS)
def test_each_stage_mounts_what_it_needs_and_writes_only_where_it_must(stage: str) -> None:
    job = make_training(output={"adapter": {"uri": "pvc://adapters/t"}, "merged": {"uri": "pvc://merged/t"}})
    mounts = mounts_of(training_job(make_training_plan(job), stage))
    assert {path: only for path, only in mounts.items() if path not in OF_POD} == {
        f"/mnt/{path}": only for path, only in STAGE_MOUNTS[stage].items()
    }


def test_reference_is_mounted_to_be_read_and_named_for_the_trainer() -> None:
    reference = {"model": {"uri": "pvc://others/m"}, "adapter": {"trainingJobRef": {"name": "first"}}}
    job = make_training(method="DPO", preference={"reference": reference})
    plan = replace(make_training_plan(job), reference=Source(uri="pvc://published/first"))
    for stage in ("prepare", "train"):
        mounts = mounts_of(training_job(plan, stage))
        assert mounts["/mnt/claims/others"]
        assert mounts["/mnt/claims/published"]
    config = TrainingConfig.model_validate_json(training_config_map(plan)["data"]["config.json"])
    assert config.method == "DPO"
    assert config.reference is not None
    assert (config.reference.model_path, config.reference.model_source) == ("/mnt/claims/others/m", "pvc://others/m")
    assert config.reference.adapter_path == "/mnt/claims/published/first"
    plain = training_config_map(make_training_plan(make_training(method="DPO")))
    assert TrainingConfig.model_validate_json(plain["data"]["config.json"]).reference is None


GPU = {"cpu": 4, "memory": "8Gi", "nvidia.com/gpu": 1}


@pytest.mark.parametrize(("stage", "holds"), [("prepare", False), ("train", True), ("merge", False)])
def test_only_the_training_holds_a_gpu(stage: str, holds: bool) -> None:
    job = make_training(resources={"requests": {"cpu": 4, "memory": "8Gi"}, "limits": GPU})
    pod = training_job(make_training_plan(job), stage)
    asked = pod_of(pod)["containers"][0]["resources"]
    assert asked["requests"] == {"cpu": 4, "memory": "8Gi"}
    assert asked["limits"] == {name: GPU[name] for name in GPU if holds or name != "nvidia.com/gpu"}
    hidden = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
    assert (hidden in env_of(pod)) is not holds


@pytest.mark.parametrize(
    ("resources", "asks"), [({"limits": GPU}, True), ({"limits": {"cpu": 4}}, False), (None, False)]
)
def test_training_config_says_how_the_device_is_used(resources: dict[str, Any] | None, asks: bool) -> None:
    job = make_training(resources=resources, quantization="NF4", plan={"microBatchSize": 2, "compile": "Disabled"})
    config = TrainingConfig.model_validate_json(training_config_map(make_training_plan(job))["data"]["config.json"])
    assert config.on_accelerator is asks
    assert config.quantization == "NF4"
    assert (config.plan.micro_batch_size, config.plan.compile) == (2, "Disabled")


def test_training_config_names_image_and_base_for_the_adapters_readers() -> None:
    plan = make_training_plan(make_training())
    config = TrainingConfig.model_validate_json(training_config_map(plan)["data"]["config.json"])
    assert (config.image, config.base_model_hub_id) == ("r/trainer:1", None)
    job = make_training(image="mine:2", baseModel={"source": {"uri": "pvc://models/m"}, "hubId": "owner/m"})
    config = TrainingConfig.model_validate_json(training_config_map(make_training_plan(job))["data"]["config.json"])
    assert (config.image, config.base_model_hub_id) == ("mine:2", "owner/m")


def test_stage_that_may_ask_for_nothing_asks_for_nothing() -> None:
    job = make_training(resources={"limits": {"amd.com/gpu": 1}})
    assert pod_of(training_job(make_training_plan(job), "prepare"))["containers"][0]["resources"] == {}


def test_claim_that_is_read_and_written_is_mounted_once() -> None:
    job = make_training(output={"adapter": {"uri": "pvc://data/out"}})
    mounts = pod_of(training_job(make_training_plan(job), "train"))["containers"][0]["volumeMounts"]
    assert [mount["mountPath"] for mount in mounts].count("/mnt/claims/data") == 1
    assert not mounts_of(training_job(make_training_plan(job), "train"))["/mnt/claims/data"]


def test_training_config_names_each_dataset_as_the_user_did() -> None:
    config_map = training_config_map(make_training_plan(make_training()))
    config = TrainingConfig.model_validate(json.loads(config_map["data"]["config.json"]))
    assert [dataset.path for dataset in config.datasets] == ["/mnt/claims/data/a.jsonl", "/mnt/configmaps/rows/b.jsonl"]
    assert config.datasets[0].field == "spec.datasets[0].source.uri (pvc://data/a.jsonl)"
    assert config.workspace_path == "/mnt/claims/work/t-12345678"
    assert config.report_url == "http://op/v1/reports/loratrainingjobs/n/t"


def test_dataset_from_outside_is_fetched_into_the_workspace_with_its_keys() -> None:
    source = {"uri": "s3://bucket/rows.parquet", "digest": "sha256:" + "0" * 64, "secretRef": {"name": "keys"}}
    plan = make_training_plan(make_training(datasets=[{"name": "far", "source": source}]))
    config = TrainingConfig.model_validate_json(training_config_map(plan)["data"]["config.json"])
    (dataset,) = config.datasets
    assert dataset.path == "/mnt/claims/work/t-12345678/datasets/far.parquet"
    assert (dataset.uri, dataset.digest) == (source["uri"], source["digest"])
    assert dataset.field == "spec.datasets[0].source.uri (s3://bucket/rows.parquet)"
    for stage, needs in (("prepare", True), ("train", True), ("merge", False)):
        container = training_job(plan, stage)["spec"]["template"]["spec"]["containers"][0]
        assert (dataset.secret_path in {mount["mountPath"] for mount in container["volumeMounts"]}) is needs


def test_training_config_says_what_is_used_of_the_data() -> None:
    rows = {"source": {"uri": "pvc://data/a.jsonl"}, "weight": "2", "filter": {"maximumTurns": 3}}
    job = make_training(datasets=[{"name": "a", **rows}], preparation={"minimumRows": 7}, evaluation={"share": "0.1"})
    config = TrainingConfig.model_validate_json(training_config_map(make_training_plan(job))["data"]["config.json"])
    assert config.datasets[0].weight == "2"
    assert config.datasets[0].filter is not None
    assert config.datasets[0].filter.maximum_turns == 3
    assert config.preparation.minimum_rows == 7
    assert config.evaluation is not None
    assert config.evaluation.share == "0.1"


@pytest.mark.parametrize("stage", ["prepare", "train", "merge"])
def test_job_fails_at_once_on_wrong_input_and_ignores_evictions(stage: str) -> None:
    rules = training_job(make_training_plan(make_training()), stage)["spec"]["podFailurePolicy"]["rules"]
    assert [rule["action"] for rule in rules] == ["FailJob", "Ignore", "Ignore"]
    codes = [rule["onExitCodes"] for rule in rules[:2]]
    assert [(one["containerName"], one["values"]) for one in codes] == [("main", [65]), ("main", [143])]


def test_job_name_stays_when_only_what_may_change_changes() -> None:
    first = stage_job_name(make_training(), stage="train", retry=None)
    limits = {"resources": {"limits": {"cpu": 2}}, "activeDeadlineSeconds": 5, "queueName": "team"}
    changed = make_training(suspend=True, ttlSecondsAfterFinished=5, **limits)
    assert stage_job_name(changed, stage="train", retry=None) == first


def test_job_name_differs_for_a_namesake_created_later_and_for_a_retry() -> None:
    names = {
        stage_job_name(make_training(), stage="train", retry=None),
        stage_job_name(make_training(uid="another"), stage="train", retry=None),
        stage_job_name(make_training(), stage="train", retry="once more"),
    }
    assert len(names) == 3


def test_training_pod_holds_no_api_token_and_the_runner_does() -> None:
    trainer = pod_of(training_job(make_training_plan(make_training()), "train"))
    runner = pod_of(benchmark_job(make_benchmark_plan()))
    assert trainer["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in trainer
    assert runner["serviceAccountName"] == "whetstone-runner"


def test_a_runner_whose_trials_are_processes_holds_no_api_token() -> None:
    runner = pod_of(benchmark_job(make_benchmark_plan(sandbox="Process")))
    assert runner["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in runner


def test_runner_gets_the_key_of_the_server_that_it_measures() -> None:
    plan = make_benchmark_plan()
    [variable] = [one for one in env_of(benchmark_job(plan)) if one["name"] == API_KEY_VARIABLE]
    reference = variable["valueFrom"]["secretKeyRef"]
    server = plan.run.spec.target.model_server_ref.name
    assert reference == {"name": f"{server}-access", "key": "runner-key", "optional": True}
    trainer = env_of(training_job(make_training_plan(make_training()), "train"))
    assert API_KEY_VARIABLE not in {one["name"] for one in trainer}


def env_of(job: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pod_of(job)["containers"][0]["env"]
    return found


def test_runner_reads_adapter_and_baseline_and_writes_its_output() -> None:
    mounts = mounts_of(benchmark_job(make_benchmark_plan()))
    assert mounts["/mnt/claims/adapters"]
    assert mounts["/mnt/claims/data"]
    assert not mounts["/mnt/claims/results"]


def test_runner_config_round_trips() -> None:
    config_map = benchmark_config_map(make_benchmark_plan())
    config = BenchmarkConfig.model_validate(json.loads(config_map["data"]["config.json"]))
    assert config.adapter_path == "/mnt/claims/adapters/tools"
    assert config.baseline_path == "/mnt/claims/results/base"
    assert config.served_name == "tools--abababab"


def test_the_runner_gets_the_rules_of_discipline() -> None:
    plan = make_benchmark_plan()
    rules = DisciplineRules.model_validate({"done": ["tick"]})
    asking = plan.run.model_copy(update={"spec": plan.run.spec.model_copy(update={"discipline": rules})})
    for run, expected in ((asking, rules), (plan.run, None)):
        config_map = benchmark_config_map(replace(plan, run=run))
        assert BenchmarkConfig.model_validate_json(config_map["data"]["config.json"]).discipline == expected


def test_job_keeps_the_version_that_it_measures() -> None:
    job = benchmark_job(make_benchmark_plan())
    kept = MeasuredTarget.model_validate_json(job["metadata"]["annotations"]["whetstone.dev/measured-target"])
    assert kept == make_benchmark_plan().target


def test_base_run_mounts_no_adapter() -> None:
    assert "/mnt/claims/adapters" not in mounts_of(benchmark_job(make_benchmark_plan(adapter=False)))


def test_longest_object_name_fits_a_job_and_its_pods() -> None:
    plan = make_benchmark_plan()
    long = plan.run.model_copy(update={"metadata": plan.run.metadata.model_copy(update={"name": "x" * 40})})
    assert len(run_job_name(long, None)) <= 63


def test_unsloth_trains_in_its_own_image_and_the_rest_in_ours() -> None:
    plan = make_training_plan(make_training(backend="Unsloth"))
    with pytest.raises(Stalled, match=r"images\.unsloth"):
        training_job(plan, PREPARE)
    known = replace(plan, settings=replace(SETTINGS, unsloth_image="r/unsloth:1"))
    images = [pod_of(training_job(known, stage))["containers"][0]["image"] for stage in (PREPARE, TRAIN, MERGE)]
    assert images == ["r/trainer:1", "r/unsloth:1", "r/trainer:1"]
    assert training_config(known).backend == "Unsloth"
    named = replace(plan, job=make_training(backend="Unsloth", image="r/mine:1"))
    assert pod_of(training_job(named, TRAIN))["containers"][0]["image"] == "r/mine:1"


OVERLAY = {
    "metadata": {"labels": {"team": "a"}},
    "spec": {
        "nodeSelector": {"gpu": "h100"},
        "runtimeClassName": "nvidia",
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
        "containers": [
            {
                "name": "main",
                "env": [{"name": "NCCL_DEBUG", "value": "INFO"}],
                "resources": {"claims": [{"name": "gpu"}]},
            }
        ],
    },
}


@pytest.mark.parametrize(("stage", "trains"), [("prepare", False), ("train", True), ("merge", False)])
def test_only_the_pods_that_train_are_put_where_devices_are(stage: str, trains: bool) -> None:
    job = make_training(podTemplate=OVERLAY, resources={"limits": {"cpu": 2}})
    rendered = training_job(make_training_plan(job), stage)
    pod = pod_of(rendered)
    placed = {"nodeSelector", "runtimeClassName", "resourceClaims"}
    assert placed & pod.keys() == (placed if trains else set())
    assert ("claims" in pod["containers"][0]["resources"]) is trains
    assert pod["containers"][0]["resources"]["limits"] == {"cpu": 2}
    assert pod["tolerations"] == OVERLAY["spec"]["tolerations"]
    assert {"name": "NCCL_DEBUG", "value": "INFO"} in pod["containers"][0]["env"]
    assert rendered["spec"]["template"]["metadata"]["labels"]["team"] == "a"


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"hostNetwork": True}, "spec.hostNetwork"),
        ({"serviceAccountName": "admin"}, "spec.serviceAccountName: must not be set: training pods use no"),
        ({"terminationGracePeriodSeconds": 1}, "spec.terminationGracePeriodSeconds: must not be set: it is what a ch"),
        ({"volumes": [{"name": "host", "hostPath": {"path": "/"}}]}, "spec.volumes[host].hostPath"),
        ({"containers": [{"name": "main", "image": "other"}]}, "spec.containers[main].image"),
        (
            {"containers": [{"name": "main", "resources": {"limits": {}}}]},
            "spec.containers[main].resources: only claims",
        ),
        (
            {"containers": [{"name": "main", "env": [{"name": "RANK", "value": "0"}]}]},
            "spec.containers[main].env[RANK]",
        ),
        (
            {"containers": [{"name": "main", "env": [{"name": "HOME", "value": "/"}]}]},
            "spec.containers[main].env[HOME]",
        ),
    ],
)
@pytest.mark.parametrize("stage", ["prepare", "train"])
def test_what_users_may_not_decide_of_training_pods_is_refused_by_its_path(
    spec: dict[str, Any], path: str, stage: str
) -> None:
    job = make_training(podTemplate={"spec": spec})
    with pytest.raises(OverlayError, match=re.escape(f"spec.podTemplate.{path}")):
        training_job(make_training_plan(job), stage)


@pytest.mark.parametrize("workspace", [{"claimName": "work"}, {"claimTemplate": {"size": "1Gi"}}])
def test_data_from_outside_lies_in_the_workspace_whoever_made_its_claim(workspace: dict[str, Any]) -> None:
    datasets = [{"name": "far", "source": {"uri": "s3://bucket/train.jsonl"}}]
    config = training_config(make_training_plan(make_training(workspace=workspace, datasets=datasets)))
    assert config.datasets[0].path.startswith(f"{config.workspace_path}/")
