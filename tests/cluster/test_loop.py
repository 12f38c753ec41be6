"""The whole loop on the node, small. Structure only: the score belongs to the demo."""

from decimal import Decimal

import pytest
from support.loop import READY_SECONDS, Loop, pod_is_ready
from support.node import kill
from support.waiting import eventually
from whetstone_dev.demo import plan
from whetstone_dev.demo.watch import condition, is_true

pytestmark = pytest.mark.cluster


def test_every_object_is_ready_and_says_for_which_generation(loop: Loop) -> None:
    for kind, name in (
        ("ModelServer", plan.SERVER),
        ("LoRATrainingJob", plan.TRAINING),
        ("BenchmarkRun", plan.BASELINE),
        ("BenchmarkRun", plan.CANDIDATE),
    ):
        obj = loop.get(kind, name)
        assert is_true(obj, "Ready")
        assert obj["status"]["observedGeneration"] == obj["metadata"]["generation"]


def test_candidate_measured_the_published_adapter(loop: Loop) -> None:
    adapter = loop.get("LoRATrainingJob", plan.TRAINING)["status"]["adapter"]
    target = loop.get("BenchmarkRun", plan.CANDIDATE)["status"]["target"]
    assert target["digest"] == adapter["digest"]
    assert target["servedName"] == f"{plan.ADAPTER}--{adapter['digest'].removeprefix('sha256:')[:8]}"


def test_comparison_pairs_all_tasks_and_its_verdict_follows_from_the_interval(loop: Loop) -> None:
    comparison = loop.get("BenchmarkRun", plan.CANDIDATE)["status"]["comparison"]
    low, high = Decimal(comparison["interval"]["low"]), Decimal(comparison["interval"]["high"])
    assert comparison["wins"] + comparison["losses"] + comparison["ties"] == plan.SMALL.tasks
    assert low <= Decimal(comparison["difference"]) <= high
    assert (comparison["verdict"] == "Better") == (low > 0)


def test_alias_serves_the_adapter_only_when_the_gate_has_passed(loop: Loop) -> None:
    passed = is_true(loop.get("BenchmarkRun", plan.CANDIDATE), "GatePassed")
    alias = loop.server()["status"]["aliases"][0]
    assert alias["adapter"] == (plan.ADAPTER if passed else plan.MODEL)
    assert loop.ask(plan.ALIAS) == (200, alias["servedName"])


def test_alias_moves_when_a_selected_run_passes_its_gate_and_stays_when_the_run_is_deleted(loop: Loop) -> None:
    loop.promote("solved")
    version = loop.adapter()["servedName"]
    loop.delete("BenchmarkRun", "solved")
    eventually(lambda: not loop.pods("benchmark-run", "solved"), what="pods of the deleted run gone", seconds=150)
    assert loop.ask(plan.ALIAS) == (200, version)


def test_adapter_was_loaded_without_a_restart_of_the_engine(loop: Loop) -> None:
    [pod] = loop.engine_pods()
    containers = {item["name"]: item for item in pod["status"]["containerStatuses"]}
    adapter = loop.get("LoRATrainingJob", plan.TRAINING)["status"]["adapter"]
    assert containers["engine"]["restartCount"] == 0
    assert containers["engine"]["state"]["running"]["startedAt"] < adapter["publishedAt"]


def test_unknown_model_name_is_refused_by_name(loop: Loop) -> None:
    assert loop.ask("no-such-model")[0] == 404


def test_adapter_returns_after_engine_restart(loop: Loop) -> None:
    [pod] = loop.engine_pods()
    version = loop.adapter()["servedName"]
    kill(pod, "engine")
    eventually(lambda: not pod_is_ready(loop.engine_pods()[0]), what="pod not Ready after the kill", seconds=60)
    eventually(lambda: pod_is_ready(loop.engine_pods()[0]), what="pod Ready again", seconds=READY_SECONDS)
    assert loop.ask(plan.ADAPTER) == (200, version)
    eventually(loop.is_serving, what="status tells that the adapter is back", seconds=60)
    assert loop.engine_pods()[0]["metadata"]["uid"] == pod["metadata"]["uid"]


def test_replacement_pod_holds_the_adapter_before_it_is_ready(loop: Loop) -> None:
    [pod] = loop.engine_pods()
    version = loop.adapter()["servedName"]
    loop.kube.delete("v1", "Pod", name=pod["metadata"]["name"], namespace=loop.namespace)

    def replacement() -> bool:
        pods = [one for one in loop.engine_pods() if one["metadata"]["uid"] != pod["metadata"]["uid"]]
        return bool(pods) and pod_is_ready(pods[0])

    eventually(replacement, what="replacement pod Ready", seconds=READY_SECONDS)
    assert loop.ask(plan.ADAPTER) == (200, version)
    eventually(loop.is_serving, what="status tells that the adapter is there", seconds=60)


@pytest.mark.parametrize(
    ("api_version", "kind", "name"),
    [
        ("v1", "Service", plan.SERVER),
        ("v1", "ConfigMap", f"{plan.SERVER}-desired"),
        ("policy/v1", "PodDisruptionBudget", f"{plan.SERVER}-engine"),
    ],
)
def test_deleted_child_comes_back(loop: Loop, api_version: str, kind: str, name: str) -> None:
    before = loop.kube.get(api_version, kind, name=name, namespace=loop.namespace)
    assert before is not None
    loop.kube.delete(api_version, kind, name=name, namespace=loop.namespace)

    def is_back() -> bool:
        found = loop.kube.get(api_version, kind, name=name, namespace=loop.namespace)
        return found is not None and found["metadata"]["uid"] != before["metadata"]["uid"]

    eventually(is_back, what=f"{kind} {name} back")


def test_deleting_a_job_object_removes_its_children_and_keeps_its_result(loop: Loop) -> None:
    labels = f"whetstone.dev/lora-training-job={plan.TRAINING}"
    assert loop.kube.list("batch/v1", "Job", namespace=loop.namespace, labels=labels)
    digest = loop.adapter()["digest"]
    loop.delete("LoRATrainingJob", plan.TRAINING)

    def children() -> list[str]:
        found = []
        for api_version, kind in (("batch/v1", "Job"), ("v1", "ConfigMap"), ("v1", "Pod")):
            items = loop.kube.list(api_version, kind, namespace=loop.namespace, labels=labels)
            found += [f"{kind} {item['metadata']['name']}" for item in items]
        return found

    eventually(lambda: not children(), what="the children of the training job gone", seconds=90)
    eventually(loop.is_serving, what="the server still serves the adapter", seconds=60)
    assert loop.adapter()["digest"] == digest


def test_training_created_again_adopts_what_it_published(loop: Loop) -> None:
    digest = loop.adapter()["digest"]
    manifests = plan.fit_to_cpu(plan.examples(), plan.SMALL)
    training = next(obj for obj in manifests if obj["kind"] == "LoRATrainingJob")
    loop.kube.apply(training, namespace=loop.namespace)
    eventually(
        lambda: is_true(loop.get("LoRATrainingJob", plan.TRAINING), "Ready"), what="training adopted", seconds=180
    )
    again = loop.get("LoRATrainingJob", plan.TRAINING)
    ready = condition(again, "Ready")
    assert ready is not None
    assert ready["reason"] == "Adopted"
    assert again["status"]["adapter"]["digest"] == digest
