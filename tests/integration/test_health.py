"""What Argo CD's health checks and kstatus say of every kind at every stage that a real operator brings it to."""

from typing import Any

import pytest
from integration.operator_process import OperatorProcess
from integration.world import ADAPTER, DATASET, RESULTS, World, user_error
from support.health import DEGRADED, HEALTHY, KEY, PROGRESSING, SUSPENDED, Health, health_checks, health_of, judge
from support.waiting import eventually
from whetstone_api.crdgen import KINDS

pytestmark = pytest.mark.integration
SERVER, TRAINING, RUN = "ModelServer", "LoRATrainingJob", "BenchmarkRun"


def wait_health(world: World, kind: str, name: str, health: Health, *, reason: str) -> None:
    """Wait for a reason of Ready; the health of the object must be right at that same moment."""

    def found() -> dict[str, Any] | None:
        obj = world.get(kind, name)
        conditions = {one["type"]: one for one in obj["status"].get("conditions", [])}
        assert conditions.get("Ready", {}).get("reason") == reason, f"{conditions}"
        return obj

    obj = eventually(found, what=f"{kind} {name} has reason {reason}")
    assert health_of(obj) == health, obj["status"]
    message = judge(obj)["health"]["message"]
    assert message.startswith(f"{reason}: "), message


def test_every_kind_has_a_check() -> None:
    assert set(health_checks()) == {KEY + kind.kind_name for kind in KINDS}


def test_what_no_operator_has_looked_at_is_under_way(world: World) -> None:
    created = [world.serve(), world.train(), world.benchmark()]
    assert [health_of(obj) for obj in created] == [PROGRESSING] * 3


def test_server(world: World, operator: OperatorProcess) -> None:
    world.serve()
    wait_health(world, SERVER, "server", PROGRESSING, reason="ClaimNotFound")
    world.claims()
    wait_health(world, SERVER, "server", PROGRESSING, reason="EngineStarting")
    world.start_engines()
    wait_health(world, SERVER, "server", HEALTHY, reason="Serving")
    operator.kill()
    behind = world.api.merge(SERVER, "server", {"spec": {"replicas": 0}}, namespace=world.namespace)
    assert health_of(behind) == PROGRESSING
    going = {**behind, "metadata": {**behind["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert health_of(going) == Health("Progressing", "Terminating")
    operator.start()
    wait_health(world, SERVER, "server", SUSPENDED, reason="ScaledToZero")
    eventually(lambda: not world.engine_pods(), what="no pods")
    world.api.merge(SERVER, "server", {"spec": {"replicas": 1}}, namespace=world.namespace)
    [pod] = eventually(world.engine_pods, what="an engine pod")
    waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
    container = {"name": "engine", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    status = {"phase": "Pending", "containerStatuses": [{**container, "state": {"waiting": waiting}}]}
    world.set_pod_status(pod, status)
    wait_health(world, SERVER, "server", DEGRADED, reason="PodFailed")


def test_training(world: World, operator: OperatorProcess) -> None:
    world.train("waiting")
    wait_health(world, TRAINING, "waiting", PROGRESSING, reason="ClaimNotFound")
    world.claims()
    world.train(suspend=True)
    wait_health(world, TRAINING, "train", SUSPENDED, reason="Suspended")
    world.api.merge(TRAINING, "train", {"spec": {"suspend": False}}, namespace=world.namespace)
    wait_health(world, TRAINING, "train", PROGRESSING, reason="Preparing")
    world.end_well(world.wait_job("train", "prepare"), dataset=DATASET)
    wait_health(world, TRAINING, "train", PROGRESSING, reason="Training")
    world.end_well(world.wait_job("train", "train"), adapter=ADAPTER, metrics={})
    wait_health(world, TRAINING, "train", HEALTHY, reason="Succeeded")
    world.train("bad")
    world.end_pod(world.wait_job("bad", "prepare"), user_error("DatasetInvalid", "row 3 has no assistant turn"))
    wait_health(world, TRAINING, "bad", DEGRADED, reason="DatasetInvalid")
    world.train("queued", queueName="team")
    wait_health(world, TRAINING, "queued", PROGRESSING, reason="Queued")


def test_run(serving: World) -> None:
    shared = {"modelServerRef": {"name": "server"}, "shared": True}
    for name in ("below-its-gate", "invalid", "failed"):
        serving.benchmark(name, target=shared, gates=[{"metric": "Mean", "minimum": "0.9"}])
        wait_health(serving, RUN, name, PROGRESSING, reason="Running")
    serving.end_well(serving.wait_job("below-its-gate", "run"), results=RESULTS)
    serving.end_well(serving.wait_job("invalid", "run"), results={**RESULTS, "void": 4, "coverage": "0.5"})
    serving.end_pod(serving.wait_job("failed", "run"), user_error("TasksInvalid", "task a has no test"))
    wait_health(serving, RUN, "below-its-gate", HEALTHY, reason="Succeeded")
    wait_health(serving, RUN, "invalid", HEALTHY, reason="Succeeded")
    wait_health(serving, RUN, "failed", DEGRADED, reason="TasksInvalid")
