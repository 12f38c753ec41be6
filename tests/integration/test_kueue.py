"""The real operator beside a real Kueue: jobs are admitted, preempted, resumed, suspended, and nobody fights."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from integration.api import Api
from integration.conftest import install_kinds
from integration.operator_process import (
    USER,
    OperatorProcess,
    account_kubeconfig,
    install_rights,
    operators_entries,
    running_operator,
)
from integration.turns import turn, wait_turn
from integration.world import ADAPTER, DATASET, RESULTS, World
from support.kueue import Kueue
from support.waiting import eventually
from whetstone_dev.controlplane import ControlPlane

pytestmark = [pytest.mark.integration, pytest.mark.long]
KIND = "LoRATrainingJob"
ONE_CPU = {"requests": {"cpu": 1, "memory": "1Gi"}}
HALF = {"requests": {"cpu": "500m", "memory": "512Mi"}}
RUN = "BenchmarkRun"
QUOTA = [{"name": "cpu", "nominalQuota": 1}, {"name": "memory", "nominalQuota": "2Gi"}]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of its own: Kueue's webhooks judge every Job of a cluster."""
    with ControlPlane(tmp_path_factory.mktemp("queues"), audited=[USER]) as plane:
        yield plane
        plane.processes.stop("kueue", grace=5)


@pytest.fixture(scope="module")
def api(plane: ControlPlane) -> Iterator[Api]:
    with Api(plane.server, plane.pki.folder) as client:
        install_kinds(client)
        yield client


@pytest.fixture(scope="module")
def kueue(plane: ControlPlane, api: Api, tmp_path_factory: pytest.TempPathFactory) -> Kueue:
    kueue = Kueue(plane, api, tmp_path_factory.mktemp("kueue"))
    kueue.start()
    kueue.create("ResourceFlavor", "any", {})
    kueue.create("WorkloadPriorityClass", "urgent", {"value": 1000})
    return kueue


@pytest.fixture
def world(api: Api, kueue: Kueue) -> World:
    """A namespace with a queue `team` that has one cpu."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    api.raw("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    flavors = [{"name": "any", "resources": QUOTA}]
    queue = {
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": flavors}],
        "preemption": {"withinClusterQueue": "LowerPriority"},
    }
    kueue.create("ClusterQueue", name, queue)
    kueue.create("LocalQueue", "team", {"clusterQueue": name}, namespace=name)
    return World(api, name)


@pytest.fixture(scope="module")
def account(plane: ControlPlane, api: Api, tmp_path_factory: pytest.TempPathFactory) -> Path:
    install_rights(plane, api)
    return account_kubeconfig(plane, api, tmp_path_factory.mktemp("operator"))


@pytest.fixture
def operator(account: Path, world: World, tmp_path: Path) -> Iterator[OperatorProcess]:
    with running_operator(account, world.namespace, tmp_path / "operator.log") as process:
        yield process


@pytest.fixture
def writes(plane: ControlPlane, world: World) -> Callable[[str], list[str]]:
    """The verbs with which the operator has changed objects of a kind in the test's namespace."""

    def of(plural: str) -> list[str]:
        return [
            entry["verb"]
            for entry in operators_entries(plane)
            if entry["verb"] not in ("get", "list", "watch") and f"/{world.namespace}/{plural}" in entry["requestURI"]
        ]

    return of


def running(world: World, job: dict[str, Any]) -> bool:
    """Whether Kueue lets a Job run and it has a pod."""
    return not world.get("Job", job["metadata"]["name"])["spec"].get("suspend") and bool(world.pods(job))


def other_job(world: World, name: str, *, resources: dict[str, Any] = ONE_CPU, urgent: bool = False) -> dict[str, Any]:
    """Somebody else's Job in the same queue."""
    container = {"name": "c", "image": "registry.test/other:1", "resources": resources}
    labels = {"kueue.x-k8s.io/queue-name": "team"}
    labels |= {"kueue.x-k8s.io/priority-class": "urgent"} if urgent else {}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {"suspend": True, "template": template},
    }
    return world.api.create(job, namespace=world.namespace)


def test_job_is_admitted_preempted_resumed_and_completes(
    world: World, operator: OperatorProcess, writes: Callable[[str], list[str]]
) -> None:
    world.claims()
    world.train(queueName="team", resources=ONE_CPU)
    prepare = world.wait_job("train", "prepare")
    eventually(lambda: running(world, prepare), what="Prepare is admitted")
    world.wait_reason(KIND, "train", "Admitted", condition="QuotaReserved")
    world.end_well(prepare, dataset=DATASET)
    train = world.wait_job("train", "train")
    eventually(lambda: running(world, train), what="Train is admitted")
    first = world.pods(train)[0]["metadata"]["uid"]
    other = other_job(world, "urgent", urgent=True)
    eventually(lambda: running(world, other), what="the urgent Job is admitted")
    told = world.wait_reason(KIND, "train", "Preempted", condition="QuotaReserved")
    assert told["status"] == "False"
    assert "goes on from its last checkpoint" in told["message"]
    assert world.wait_reason(KIND, "train", "Preempted")["status"] == "False"
    assert world.condition(KIND, "train", "Failed") is None
    eventually(lambda: not world.pods(train), what="the preempted pod is gone")
    world.end_well(other)
    eventually(lambda: running(world, train), what="Train is admitted again")
    assert world.pods(train)[0]["metadata"]["uid"] != first
    world.wait_reason(KIND, "train", "Admitted", condition="QuotaReserved")
    world.end_well(train, adapter=ADAPTER)
    world.wait_reason(KIND, "train", "Succeeded", condition="Complete")
    assert world.condition(KIND, "train", "QuotaReserved") is None
    assert writes("jobs") == ["create", "create"]
    assert writes("workloads") == []


def test_suspended_job_gives_its_quota_back_and_takes_it_again(
    world: World, operator: OperatorProcess, kueue: Kueue, writes: Callable[[str], list[str]]
) -> None:
    world.claims()
    world.train(queueName="team", resources=ONE_CPU)
    job = world.wait_job("train", "prepare")
    eventually(lambda: running(world, job), what="Prepare is admitted")
    world.train("second", queueName="team", resources=ONE_CPU, output={"adapter": {"uri": "pvc://adapters/b"}})
    eventually(
        lambda: "insufficient unused quota for cpu" in str(world.condition(KIND, "second", "QuotaReserved")),
        what="Kueue's answer",
    )
    world.wait_reason(KIND, "second", "Queued", condition="QuotaReserved")
    world.api.merge(KIND, "train", {"spec": {"suspend": True}}, namespace=world.namespace)
    world.wait_reason(KIND, "train", "Suspended", condition="QuotaReserved")
    world.wait_reason(KIND, "train", "Suspended", condition="Suspended")
    second = world.wait_job("second", "prepare")
    eventually(lambda: running(world, second), what="the other job has the quota")
    assert not running(world, job)
    world.api.merge(KIND, "train", {"spec": {"suspend": False}}, namespace=world.namespace)
    eventually(lambda: kueue.workload(job)["spec"]["active"], what="the Workload is active again")
    world.wait_reason(KIND, "train", "Queued", condition="QuotaReserved")
    world.api.delete(KIND, "second", namespace=world.namespace)
    eventually(lambda: running(world, job), what="Prepare is admitted again")
    assert writes("jobs") == ["create", "create"]
    assert writes("workloads") == ["patch", "patch"]


def test_workload_that_an_administrator_stops_stays_stopped(
    world: World, operator: OperatorProcess, kueue: Kueue, writes: Callable[[str], list[str]]
) -> None:
    world.claims()
    world.train(queueName="team", resources=ONE_CPU)
    job = world.wait_job("train", "prepare")
    eventually(lambda: running(world, job), what="Prepare is admitted")
    path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{world.namespace}/workloads/"
    stopped = kueue.workload(job)
    stopped["spec"]["active"] = False
    world.api.raw("PUT", path + stopped["metadata"]["name"], stopped)
    told = world.wait_reason(KIND, "train", "Deactivated", condition="QuotaReserved")
    assert f"set spec.active of Workload {stopped['metadata']['name']} to true" in told["message"]
    assert writes("workloads") == []


def test_queue_that_does_not_exist_is_named(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.train(queueName="nowhere", resources=ONE_CPU)
    told = world.wait_reason(KIND, "train", "Queued", condition="QuotaReserved")
    eventually(
        lambda: "LocalQueue nowhere doesn't exist" in str(world.condition(KIND, "train", "QuotaReserved")),
        what=f"Kueue's answer, not only {told}",
        seconds=60,
    )


def test_all_pods_of_a_training_are_admitted_together(world: World, operator: OperatorProcess, kueue: Kueue) -> None:
    world.claims()
    other = other_job(world, "other", resources=HALF)
    eventually(lambda: running(world, other), what="somebody else has half of the quota")
    world.train(queueName="team", resources=HALF, distributed={"nodes": 2})
    prepare = world.wait_job("train", "prepare")
    eventually(lambda: running(world, prepare), what="Prepare, one pod, has the other half")
    world.end_well(prepare, dataset=DATASET)
    train = world.wait_job("train", "train")
    eventually(
        lambda: "insufficient unused quota for cpu" in str(world.condition(KIND, "train", "QuotaReserved")),
        what="Kueue's answer",
    )
    world.wait_reason(KIND, "train", "Queued", condition="QuotaReserved")
    assert [one["count"] for one in kueue.workload(train)["spec"]["podSets"]] == [2]
    assert world.pods(train) == []
    world.end_well(other)
    eventually(lambda: len(world.pods(train)) == 2, what="both pods")
    world.wait_reason(KIND, "train", "Admitted", condition="QuotaReserved")


def test_run_in_shards_is_admitted_preempted_resumed_and_completes(
    serving: World, writes: Callable[[str], list[str]]
) -> None:
    other = other_job(serving, "other", resources=HALF)
    eventually(lambda: running(serving, other), what="somebody else has half of the quota")
    serving.benchmark(queueName="team", resources=HALF, shards=2, concurrency=2)
    job = serving.wait_job("run", "run")
    serving.wait_reason(RUN, "run", "Queued", condition="QuotaReserved")
    assert serving.condition("ModelServer", "server", "Held") is None
    assert serving.pods(job) == []
    serving.end_well(other)
    eventually(lambda: len(serving.pods(job)) == 2, what="both shards")
    serving.wait_reason(RUN, "run", "Admitted", condition="QuotaReserved")
    eventually(lambda: serving.condition("ModelServer", "server", "Held"), what="the server is held")
    target = serving.get(RUN, "run")["status"]["target"]
    first = {pod["metadata"]["uid"] for pod in serving.pods(job)}
    urgent = other_job(serving, "urgent", urgent=True)
    eventually(lambda: running(serving, urgent), what="the urgent Job is admitted")
    told = serving.wait_reason(RUN, "run", "Preempted", condition="QuotaReserved")
    assert "keeps its finished trials" in told["message"]
    eventually(lambda: serving.condition("ModelServer", "server", "Held") is None, what="the server is held no more")
    eventually(lambda: not serving.pods(job), what="the preempted pods are gone")
    serving.end_well(urgent)
    eventually(lambda: len(serving.pods(job)) == 2, what="both shards again")
    assert not first & {pod["metadata"]["uid"] for pod in serving.pods(job)}
    serving.wait_reason(RUN, "run", "Admitted", condition="QuotaReserved")
    serving.end_well(job)
    serving.end_well(job, results=RESULTS)
    serving.wait_reason(RUN, "run", "Succeeded", condition="Complete")
    assert serving.condition(RUN, "run", "QuotaReserved") is None
    assert serving.get(RUN, "run")["status"]["target"] == target
    assert writes("jobs") == ["create"]
    assert writes("workloads") == []


def test_of_two_runs_that_are_admitted_together_one_measures_the_server_at_a_time(
    serving: World, operator: OperatorProcess, writes: Callable[[str], list[str]]
) -> None:
    other = other_job(serving, "other")
    eventually(lambda: running(serving, other), what="somebody else has the quota")
    jobs = {}
    for name in ("first", "second"):
        serving.benchmark(name, queueName="team", resources=HALF)
        jobs[name] = serving.wait_job(name, "run")
    serving.end_well(other)
    eventually(lambda: all(running(serving, job) for job in jobs.values()), what="both are admitted")
    names = {name: job["metadata"]["name"] for name, job in jobs.items()}
    wait_turn(serving, operator, "first", names["first"])
    assert turn(serving, operator, "second", names["second"]) == {"granted": False, "heldBy": ["first"]}
    serving.end_well(jobs["first"], results=RESULTS)
    serving.wait_reason(RUN, "first", "Succeeded", condition="Complete")
    wait_turn(serving, operator, "second", names["second"])
    assert running(serving, jobs["second"]), "it kept its quota while it waited"
    serving.end_well(jobs["second"], results=RESULTS)
    serving.wait_reason(RUN, "second", "Succeeded", condition="Complete")
    assert writes("workloads") == []
