"""What users say of the pods and the workspace of a training, against a real API server."""

import pytest
from integration.operator_process import OperatorProcess
from integration.world import DATASET, World
from support.waiting import eventually

pytestmark = pytest.mark.integration
KIND = "LoRATrainingJob"
TEMPLATE = {"claimTemplate": {"size": "2Gi", "storageClassName": "fast", "accessModes": ["ReadWriteMany"]}}


def test_pod_template_reaches_the_pods(world: World, operator: OperatorProcess) -> None:
    world.claims()
    scratch = {"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}}
    mount = {"name": "scratch", "mountPath": "/scratch"}
    sidecar = {"name": "shipper", "image": "registry.test/shipper:1", "restartPolicy": "Always"}
    spec = {
        "nodeSelector": {"gpu": "h100"},
        "volumes": [scratch],
        "initContainers": [sidecar],
        "containers": [{"name": "main", "volumeMounts": [mount]}],
    }
    world.train(podTemplate={"metadata": {"labels": {"team": "a"}}, "spec": spec})
    prepare = world.wait_job("train", "prepare")
    [pod] = eventually(lambda: world.pods(prepare), what="a pod")
    assert "nodeSelector" not in pod["spec"]
    world.end_well(prepare, dataset=DATASET)
    [pod] = eventually(lambda: world.pods(world.wait_job("train", "train")), what="a pod that trains")
    assert pod["spec"]["nodeSelector"] == {"gpu": "h100"}
    assert pod["metadata"]["labels"]["team"] == "a"
    assert mount in pod["spec"]["containers"][0]["volumeMounts"]
    [shipper] = pod["spec"]["initContainers"]
    assert shipper["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize(
    ("spec", "reason", "words"),
    [
        ({"hostNetwork": True}, "InvalidSpec", "spec.podTemplate.spec.hostNetwork: must not be set"),
        ({"tolerations": [{"key": "a", "operator": "Sometimes"}]}, "ApplyRefused", "Unsupported value"),
    ],
)
def test_pod_template_that_cannot_be_is_told_before_anything_runs(
    world: World, operator: OperatorProcess, spec: dict[str, object], reason: str, words: str
) -> None:
    world.claims()
    world.train(podTemplate={"spec": spec})
    assert words in world.wait_reason(KIND, "train", reason, condition="Stalled")["message"]
    assert world.jobs("train") == []


def test_priority_class_that_does_not_exist_is_waited_for(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.train(podTemplate={"spec": {"priorityClassName": world.namespace}})
    told = world.wait_reason(KIND, "train", "ApplyRefused")
    assert f"no PriorityClass with name {world.namespace} was found" in told["message"]
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    world.api.raw("POST", path, {"metadata": {"name": world.namespace}, "value": 10})
    world.wait_job("train", "prepare")
    world.api.raw("DELETE", f"{path}/{world.namespace}")


def test_workspace_of_its_own_is_made_and_deleted_with_the_job(world: World, operator: OperatorProcess) -> None:
    world.claims("models", "data", "adapters")
    world.train(workspace=TEMPLATE)
    job = world.wait_job("train", "prepare")
    claim = world.get("PersistentVolumeClaim", "train-workspace")
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["spec"]["resources"] == {"requests": {"storage": "2Gi"}}
    volumes = job["spec"]["template"]["spec"]["volumes"]
    assert {"claimName": "train-workspace"} in [one.get("persistentVolumeClaim") for one in volumes]
    assert claim["metadata"]["ownerReferences"][0]["uid"] == world.get(KIND, "train")["metadata"]["uid"]


def test_claim_of_somebody_else_is_not_taken_for_the_workspace(world: World, operator: OperatorProcess) -> None:
    world.claims("models", "data", "adapters", "train-workspace")
    world.train(workspace=TEMPLATE)
    told = world.wait_reason(KIND, "train", "InvalidSpec", condition="Stalled")
    assert "PersistentVolumeClaim train-workspace exists and is not of this job" in told["message"]
    world.api.delete("PersistentVolumeClaim", "train-workspace", namespace=world.namespace)
