"""`kubectl describe` tells an object's story: each change of a condition is an Event of the same reason, in order."""

import re
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httpx
import pytest
from integration.api import Object
from integration.operator_process import OperatorProcess
from integration.world import ADAPTER, DATASET, RESULTS, World, user_error
from support.waiting import eventually
from whetstone_api.vocabulary import Annotation, ConditionType, Reason
from whetstone_dev.commands import run
from whetstone_dev.controlplane import ControlPlane

pytestmark = pytest.mark.integration
SUMMARY = {"Ready", "Reconciling", "Stalled", "Complete", "Failed", "Suspended"}
Describe = Callable[[str, str], list[str]]


class Watched:
    """The conditions of an object in all their versions.

    Args:
        world: Its namespace.
        kind: Its kind; it need not exist yet.
        name: Its name.
    """

    def __init__(self, world: World, kind: str, name: str) -> None:
        self._kind = kind
        self._statuses: list[Object] = []
        seen = world.api.watch(kind, namespace=world.namespace, name=name)

        def follow() -> None:
            # It ends with the client.
            with suppress(httpx.HTTPError):
                for obj in seen:
                    self._statuses.append(obj.get("status") or {})

        threading.Thread(target=follow, daemon=True).start()

    def changes(self) -> list[str]:
        """Return the reasons that conditions changed to, each time, but for what a new server is born with."""
        told: list[str] = []
        before: dict[str, tuple[str, str]] = {}
        for status in list(self._statuses):
            now = {one["type"]: (one["status"], one["reason"]) for one in status.get("conditions") or []}
            for name in (str(name) for name in ConditionType if str(name) in now):
                born = self._kind == "ModelServer" and name not in SUMMARY and name not in before
                if now[name] != before.get(name) and not (born and now[name][0] != "False"):
                    told.append(now[name][1])
            before = now
        return told


@pytest.fixture
def describe(control_plane: ControlPlane, world: World) -> Describe:
    """What `kubectl describe` lists as Events of an object: reasons, from top to bottom."""

    def reasons(kind: str, name: str) -> list[str]:
        place = ["--kubeconfig", control_plane.kubeconfig, "--namespace", world.namespace]
        text = run([control_plane.kubectl, *place, "describe", kind.lower(), name])
        events = text.partition("\nEvents:")[2].splitlines()
        rows = [re.match(r"\s+(?:Normal|Warning)\s+(\w+)\s", line) for line in events]
        return [row[1] for row in rows if row]

    return reasons


def assert_told(watched: Watched, listed: Callable[[], list[str]], story: list[str]) -> None:
    """Check that each change has its Event, no Event is of anything else, and the story is told in its order."""

    def complete() -> bool:
        changed, told = watched.changes(), listed()
        assert set(told) == set(changed), f"changed {changed}, told {told}"
        rest = iter(told)
        assert all(reason in rest for reason in story), f"told {told}"
        return True

    eventually(complete, what="the whole story")
    assert set(listed()) <= {reason.value for reason in Reason}


def test_the_life_of_a_server(world: World, operator: OperatorProcess, describe: Describe) -> None:
    watched = Watched(world, "ModelServer", "server")
    world.serve(adapters=[{"name": "tuned", "trainingJobRef": {"name": "nobody"}}])
    world.wait_reason("ModelServer", "server", "ClaimNotFound")
    world.claims()
    world.wait_reason("ModelServer", "server", "EngineStarting")
    [pod] = eventually(world.engine_pods, what="a pod")
    refused: dict[str, Any] = {"reason": "ImagePullBackOff", "message": "not found"}
    engine = next(one for one in pod["spec"]["containers"] if one["name"] == "engine")
    status = {"name": "engine", "image": engine["image"], "imageID": "", "ready": False, "restartCount": 0}
    world.set_pod_status(pod, {"phase": "Pending", "containerStatuses": [{**status, "state": {"waiting": refused}}]})
    world.wait_reason("ModelServer", "server", "PodFailed")
    world.set_pod_status(pod, {"phase": "Running", "containerStatuses": [{**status, "state": {"running": {}}}]})
    world.start_engines()
    world.api.merge("ModelServer", "server", {"spec": {"replicas": 0}}, namespace=world.namespace)
    world.wait_reason("ModelServer", "server", "ScaledToZero")
    eventually(lambda: not world.engine_pods(), what="no pod")
    world.api.merge("ModelServer", "server", {"spec": {"replicas": 1}}, namespace=world.namespace)
    world.wait_reason("ModelServer", "server", "EngineStarting")
    world.start_engines()
    story = ["ClaimNotFound", "EngineStarting", "PodFailed", "Serving", "ScaledToZero", "EngineStarting", "Serving"]
    assert_told(watched, lambda: describe("ModelServer", "server"), story)
    assert "ReferenceNotFound" in describe("ModelServer", "server")


def test_the_life_of_a_training(world: World, operator: OperatorProcess, describe: Describe) -> None:
    watched = Watched(world, "LoRATrainingJob", "train")
    world.train()
    world.wait_reason("LoRATrainingJob", "train", "ClaimNotFound")
    world.claims()
    wrong = user_error("DatasetInvalid", "row 3 is no conversation")
    first = world.wait_job("train", "prepare")
    world.end_pod(first, wrong)
    world.wait_reason("LoRATrainingJob", "train", "DatasetInvalid", condition="Failed")
    retry = {"metadata": {"annotations": {Annotation.RETRY: "now"}}}
    world.api.merge("LoRATrainingJob", "train", retry, namespace=world.namespace)
    world.wait_reason("LoRATrainingJob", "train", "Preparing")
    [second] = eventually(
        lambda: [job for job in world.jobs("train") if job["metadata"]["uid"] != first["metadata"]["uid"]],
        what="another Job",
    )
    world.end_well(second, dataset=DATASET)
    job = world.wait_job("train", "train")
    world.wait_reason("LoRATrainingJob", "train", "Training")
    world.api.merge("LoRATrainingJob", "train", {"spec": {"suspend": True}}, namespace=world.namespace)
    world.wait_reason("LoRATrainingJob", "train", "Suspended")
    eventually(lambda: not world.pods(job), what="no pod")
    world.api.merge("LoRATrainingJob", "train", {"spec": {"suspend": False}}, namespace=world.namespace)
    world.wait_reason("LoRATrainingJob", "train", "Training")
    world.end_well(job, adapter=ADAPTER, metrics={})
    world.wait_reason("LoRATrainingJob", "train", "Succeeded", condition="Complete")
    story = ["ClaimNotFound", "Preparing", "DatasetInvalid", "Preparing"]
    story += ["Training", "Suspended", "Training", "Succeeded"]
    assert_told(watched, lambda: describe("LoRATrainingJob", "train"), story)
    assert "JobSuspended" not in describe("LoRATrainingJob", "train")


def test_the_life_of_a_benchmark(world: World, operator: OperatorProcess, describe: Describe) -> None:
    watched = Watched(world, "BenchmarkRun", "run")
    world.benchmark(gates=[{"metric": "Mean", "minimum": "0.1"}])
    world.wait_reason("BenchmarkRun", "run", "ReferenceNotFound")
    world.serve()
    world.wait_reason("BenchmarkRun", "run", "ReferenceNotReady")
    world.claims()
    world.start_engines()
    world.wait_reason("BenchmarkRun", "run", "TrialsForbidden")
    world.account()
    job = world.wait_job("run", "run")
    world.wait_reason("BenchmarkRun", "run", "Running")
    world.end_well(job, results=RESULTS, target={"servedName": "base"})
    world.wait_reason("BenchmarkRun", "run", "Succeeded", condition="Complete")
    story = ["ReferenceNotFound", "ReferenceNotReady", "TrialsForbidden", "Running", "Succeeded"]
    assert_told(watched, lambda: describe("BenchmarkRun", "run"), story)
    assert {"WithinLimits", "GatesPassed"} <= set(describe("BenchmarkRun", "run"))
