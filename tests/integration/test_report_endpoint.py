"""The endpoint that pods report to takes a report only from a pod of that object."""

import ssl

import httpx
import pytest
from integration.operator_process import OperatorProcess
from integration.world import DATASET, World
from support.waiting import eventually
from whetstone_api.vocabulary import REPORT_AUDIENCE, REPORT_TOKEN_PATH
from whetstone_dev.controlplane import ControlPlane

pytestmark = pytest.mark.integration
BODY = {"phase": "Prepare", "step": 3, "maxSteps": 9}


def test_progress_of_the_objects_own_pod_reaches_its_status(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.train()
    job = world.wait_job("train", "prepare")
    pod = eventually(lambda: world.pods(job), what="a pod")[0]
    path = f"loratrainingjobs/{world.namespace}/train"
    assert operator.report(path, token=world.pod_token(pod), body=BODY) == 202
    progress = eventually(lambda: world.get("LoRATrainingJob", "train")["status"].get("progress"), what="progress")
    assert (progress["phase"], progress["step"], progress["maxSteps"]) == ("Prepare", 3, 9)
    figures = {"loss": 0.51239, "learningRate": 0.0002, "tokensPerSecond": 1234.56, "peakMemoryBytes": 4096}
    body = {**BODY, "phase": "Train", "etaSeconds": 7, **figures}
    assert operator.report(path, token=world.pod_token(pod), body=body) == 202

    def taken() -> bool:
        progress = world.get("LoRATrainingJob", "train")["status"]["progress"]
        progress.pop("updatedAt")
        assert progress == {
            "phase": "Train",
            "percent": 33,
            "step": 3,
            "maxSteps": 9,
            "loss": "0.5124",
            "etaSeconds": 7,
            "learningRate": "2.000e-04",
            "tokensPerSecond": "1234.6",
            "peakMemoryBytes": 4096,
        }
        return True

    eventually(taken, what="the figures of a step")


def test_trainer_of_somebody_else_reports_by_kubeflows_protocol(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.train()
    world.end_well(world.wait_job("train", "prepare"), dataset=DATASET)
    job = world.wait_job("train", "train")
    pod = eventually(lambda: world.pods(job), what="a pod")[0]
    variables = {one["name"]: one.get("value") for one in pod["spec"]["containers"][0]["env"]}
    path = f"v1/trainer-status/loratrainingjobs/{world.namespace}/train"
    assert str(variables["KUBEFLOW_TRAINER_SERVER_URL"]).endswith(f"/{path}")
    assert variables["KUBEFLOW_TRAINER_SERVER_TOKEN"] == REPORT_TOKEN_PATH
    body = {
        "trainerStatus": {
            "lastUpdatedTime": "2026-01-01T00:00:00+00:00",
            "progressPercentage": 55,
            "estimatedRemainingSeconds": 12,
            "metrics": [{"name": "loss", "value": "0.5"}, {"name": "train_state", "value": "fine"}],
        }
    }
    assert operator.report(path, token="forged", body=body, base="") == 401
    token = world.pod_token(pod)
    assert operator.report(path, token=token, body={"trainerStatus": {"progressPercentage": "many"}}, base="") == 400
    assert operator.report(path, token=token, body=body, base="") == 200
    progress = eventually(
        lambda: (
            (found := world.get("LoRATrainingJob", "train")["status"].get("progress"))
            and found.get("percent") == 55
            and found
        ),
        what="the report",
    )
    assert (progress["phase"], progress["etaSeconds"], progress["loss"]) == ("Train", 12, "0.5000")


def test_token_for_reports_opens_nothing_at_the_api_server(
    world: World, operator: OperatorProcess, control_plane: ControlPlane
) -> None:
    world.claims()
    world.train()
    pod = eventually(lambda: world.pods(world.wait_job("train", "prepare")), what="a pod")[0]
    assert pod["spec"]["automountServiceAccountToken"] is False
    trusted = ssl.create_default_context(cafile=str(control_plane.pki.folder / "ca.crt"))
    with httpx.Client(base_url=control_plane.server, verify=trusted, trust_env=False) as client:

        def asked(audience: str) -> int:
            headers = {"Authorization": f"Bearer {world.pod_token(pod, audience=audience)}"}
            return client.get("/apis", headers=headers).status_code

        assert asked(REPORT_AUDIENCE) == 401
        # A token for the API server would do: it is not for another reason that ours does not.
        assert asked("https://kubernetes.default.svc") == 200


def test_reports_of_others_are_refused(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.train()
    world.train("other", output={"adapter": {"uri": "pvc://adapters/b"}})
    pod = eventually(lambda: world.pods(world.wait_job("other", "prepare")), what="a pod")[0]
    own, foreign = (f"loratrainingjobs/{world.namespace}/{name}" for name in ("other", "train"))
    token = world.pod_token(pod)
    assert operator.report(foreign, token=token, body=BODY) == 403
    assert operator.report(own, token="", body=BODY) == 401
    assert operator.report(own, token="forged", body=BODY) == 401
    audience = "https://kubernetes.default.svc"
    assert operator.report(own, token=world.pod_token(pod, audience=audience), body=BODY) == 401
    assert operator.report(f"pods/{world.namespace}/other", token=token, body=BODY) == 404
    assert operator.report(own, token=token, body={"step": "many"}) == 400
    assert operator.report(own, token=token, body=BODY) == 202
