"""The endpoint that pods report to takes a report only from a pod of that object."""

import pytest
from integration.operator_process import OperatorProcess
from integration.world import World
from support.waiting import eventually

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
