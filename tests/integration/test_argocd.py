"""The operator beside a real Argo CD, which takes charts and objects from a git repository."""

import copy
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from integration.api import Api, Object
from integration.engine_pods import SERVER_SPEC, Kubelet
from integration.operator_process import OperatorProcess, account_kubeconfig, running_operator
from integration.world import ADAPTER, DATASET, RESULTS, World, user_error
from support.argocd import RETRIED_SECONDS, ArgoCD
from support.charts import SYSTEM_NAMESPACE
from support.git_repository import GitRepository, served_repository
from support.kueue import Kueue
from support.waiting import eventually
from whetstone_api.vocabulary import API_VERSION
from whetstone_dev.controlplane import ControlPlane
from whetstone_dev.places import CHECKOUT

pytestmark = [pytest.mark.integration, pytest.mark.long]
EXAMPLES = CHECKOUT / "examples"
TEAM, TRAINING, RUN = "team-a", "LoRATrainingJob", "BenchmarkRun"
OURS = {"ModelServer": "smollm2", TRAINING: "shell-tasks", RUN: "baseline"}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("gitops")) as plane:
        yield plane


@pytest.fixture(scope="module")
def api(plane: ControlPlane) -> Iterator[Api]:
    with Api(plane.server, plane.pki.folder) as client:
        yield client


@pytest.fixture(scope="module")
def argocd(plane: ControlPlane, api: Api, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArgoCD]:
    argocd = ArgoCD(plane, api, tmp_path_factory.mktemp("argocd"))
    argocd.start()
    yield argocd
    argocd.stop()


@pytest.fixture(scope="module")
def platform(argocd: ArgoCD, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GitRepository]:
    """A repository with the charts, which Argo CD has synced as the examples say."""
    with served_repository(tmp_path_factory.mktemp("platform")) as repository:
        shutil.copytree(CHECKOUT / "charts", repository.folder / "charts")
        commit = repository.commit({})
        for name in ("whetstone-crds", "whetstone"):
            argocd.apply(application(name, repository))
            argocd.wait_synced(name, commit)
        yield repository


@pytest.fixture(scope="module")
def account(plane: ControlPlane, api: Api, platform: GitRepository, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Credentials of the operator, whose account and rights Argo CD has installed."""
    return account_kubeconfig(plane, api, tmp_path_factory.mktemp("operator"))


@pytest.fixture
def world(api: Api) -> World:
    name = f"test-{uuid.uuid4().hex[:10]}"
    api.raw("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    return World(api, name)


@pytest.fixture
def operator(account: Path, world: World, tmp_path: Path) -> Iterator[OperatorProcess]:
    with running_operator(account, world.namespace, tmp_path / "operator.log") as process:
        yield process


@pytest.fixture
def team(argocd: ArgoCD, world: World, operator: OperatorProcess, tmp_path: Path) -> Iterator[GitRepository]:
    """The repository of a team with the loop of the examples, which Argo CD has synced."""
    world.account()
    with served_repository(tmp_path) as repository:
        files = {f"loop/{path.name}": path.read_text() for path in (EXAMPLES / "loop").glob("*.yaml")}
        commit = repository.commit(files)
        argocd.apply(application(TEAM, repository, namespace=world.namespace))
        try:
            argocd.wait_synced(TEAM, commit)
            yield repository
        finally:
            argocd.delete(TEAM)


def objects(path: Path) -> list[Object]:
    return [one for one in yaml.safe_load_all(path.read_text()) if one]


def application(name: str, repository: GitRepository, *, namespace: str = "") -> Object:
    """Return an Application of the examples for a repository of ours."""
    found = {one["metadata"]["name"]: one for one in objects(EXAMPLES / "gitops" / "applications.yaml")}[name]
    spec = copy.deepcopy(found["spec"])
    spec["source"]["repoURL"] = repository.url
    if namespace:
        spec["destination"]["namespace"] = namespace
    if "helm" in spec["source"]:
        spec["source"]["helm"]["valuesObject"]["servedNamespaces"] = []
    return {**found, "spec": spec}


def health(argocd: ArgoCD, **expected: str) -> None:
    """Wait for the health of our objects, by kind."""
    for kind, word in expected.items():
        argocd.wait_health(TEAM, f"{kind}/{OURS[kind]}", word)


def identities(world: World) -> dict[str, tuple[str, int]]:
    """Return uid and generation of all our objects, and of all Jobs."""
    found = [one for kind in (*OURS, "Job") for one in world.api.list(kind, namespace=world.namespace)]
    return {one["metadata"]["name"]: (one["metadata"]["uid"], one["metadata"]["generation"]) for one in found}


def finish(world: World) -> None:
    """Bring server, training and the first run to their ends."""
    world.start_engines(OURS["ModelServer"])
    name = OURS[TRAINING]
    world.end_well(world.wait_job(name, "prepare"), dataset=DATASET)
    world.end_well(world.wait_job(name, "train"), adapter={**ADAPTER, "uri": "pvc://adapters/shell-tasks"}, metrics={})
    world.wait_reason(TRAINING, name, "Succeeded", condition="Complete")
    world.end_well(world.wait_job(OURS[RUN], "run"), results=RESULTS)
    world.wait_reason(RUN, OURS[RUN], "Succeeded", condition="Complete")


def assert_at_rest(argocd: ArgoCD, world: World) -> None:
    """A sync without a change must find no difference, by either way to compare, and change nothing."""
    before = identities(world)
    for comparison in ("ServerSideDiff=false", "ServerSideDiff=true"):
        argocd.annotate(TEAM, {"argocd.argoproj.io/compare-options": comparison})
        assert argocd.sync(TEAM)["phase"] == "Succeeded"
        status = argocd.refresh(TEAM)["status"]
        different = [one for one in status["resources"] if one["status"] != "Synced"]
        assert (status["sync"]["status"], different) == ("Synced", []), comparison
    assert identities(world) == before


def test_charts_sync_and_the_operator_is_healthy_with_its_pod(
    argocd: ArgoCD, platform: GitRepository, api: Api
) -> None:
    system = World(api, SYSTEM_NAMESPACE)
    labels = "app.kubernetes.io/name=whetstone"
    pods = eventually(lambda: api.list("Pod", namespace=SYSTEM_NAMESPACE, labels=labels), what="the operator's pod")
    argocd.wait_health("whetstone", "Deployment/whetstone-operator", "Progressing")
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    for pod in pods:
        system.set_pod_status(pod, {"phase": "Running", "conditions": [ready]})
    argocd.wait_health("whetstone", "Deployment/whetstone-operator", "Healthy")
    for name in ("whetstone-crds", "whetstone"):
        assert argocd.sync(name)["phase"] == "Succeeded"
        assert argocd.refresh(name)["status"]["sync"]["status"] == "Synced"


def test_what_has_ended_is_left_alone_by_further_syncs(argocd: ArgoCD, team: GitRepository, world: World) -> None:
    health(argocd, ModelServer="Progressing", LoRATrainingJob="Progressing", BenchmarkRun="Progressing")
    world.wait_job(OURS[TRAINING], "prepare")
    assert_at_rest(argocd, world)
    finish(world)
    health(argocd, ModelServer="Healthy", LoRATrainingJob="Healthy", BenchmarkRun="Healthy")
    assert_at_rest(argocd, world)


def test_what_others_may_change_is_no_difference(argocd: ArgoCD, team: GitRepository, world: World) -> None:
    [server], [training] = (objects(EXAMPLES / "loop" / f"{name}.yaml") for name in ("server", "training"))
    del server["spec"]["replicas"]
    queued = {**training, "metadata": {"name": "queued"}}
    queued["spec"] = {**training["spec"], "queueName": "team", "output": {"adapter": {"uri": "pvc://adapters/queued"}}}
    commit = team.commit({"loop/server.yaml": [server], "loop/queued.yaml": [queued]})
    argocd.wait_synced(TEAM, commit)
    world.wait_reason(TRAINING, "queued", "Queued")
    world.wait_job(OURS[TRAINING], "prepare")
    world.wait_job("queued", "prepare")
    world.api.merge("ModelServer", "smollm2", {"spec": {"replicas": 3}}, namespace=world.namespace)
    eventually(lambda: len(world.engine_pods("smollm2")) == 3, what="three pods")
    assert_at_rest(argocd, world)
    assert world.get("ModelServer", "smollm2")["spec"]["replicas"] == 3
    argocd.wait_health(TEAM, f"{TRAINING}/queued", "Progressing")


def manifest(kind: str, name: str, spec: Object) -> Object:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def another_training(name: str, **fields: Any) -> Object:
    """Return the training of the examples under another name and with another output."""
    [training] = objects(EXAMPLES / "loop" / "training.yaml")
    return manifest(
        TRAINING, name, {**training["spec"], "output": {"adapter": {"uri": f"pvc://adapters/{name}"}}, **fields}
    )


def test_what_has_failed_is_degraded_and_what_is_suspended_is_told_so(
    argocd: ArgoCD, team: GitRepository, world: World
) -> None:
    [server] = objects(EXAMPLES / "loop" / "server.yaml")
    idle = manifest("ModelServer", "idle", {**server["spec"], "adapters": [], "aliases": [], "replicas": 0})
    commit = team.commit({"loop/more.yaml": [another_training("held", suspend=True), another_training("bad"), idle]})
    argocd.wait_synced(TEAM, commit)
    world.end_pod(world.wait_job("bad", "prepare"), user_error("DatasetInvalid", "row 3 is no conversation"))
    world.end_pod(world.wait_job(OURS[TRAINING], "prepare"), user_error("DatasetInvalid", "row 5 is no conversation"))
    for resource, word in {
        f"{TRAINING}/bad": "Degraded",
        f"{TRAINING}/{OURS[TRAINING]}": "Degraded",
        f"{TRAINING}/held": "Suspended",
        "ModelServer/idle": "Suspended",
        # It waits for an adapter that will not come, and serves its base all the same once its engine runs.
        "ModelServer/smollm2": "Progressing",
    }.items():
        argocd.wait_health(TEAM, resource, word)
    assert_at_rest(argocd, world)
    # What has failed is not tried again by a sync; a suspended job begins with a commit that says so.
    argocd.wait_synced(TEAM, team.commit({"loop/more.yaml": [another_training("held", suspend=False), idle]}))
    world.wait_job("held", "prepare")
    argocd.wait_health(TEAM, f"{TRAINING}/held", "Progressing")


def test_adapters_that_are_loaded_while_a_server_runs_are_no_difference(
    argocd: ArgoCD, team: GitRepository, world: World, operator: OperatorProcess, tmp_path: Path
) -> None:
    with Kubelet(world, operator, tmp_path / "node") as kubelet:
        spec = {**SERVER_SPEC, "adapterCapacity": {"maxLoras": 4, "maxRank": 16}}
        first, second = (kubelet.claims.publish(name, alpha=alpha) for name, alpha in (("first", 50), ("second", 80)))

        def commit(sources: dict[str, Object]) -> None:
            adapters = [{"name": name, "source": source} for name, source in sources.items()]
            server = manifest("ModelServer", "hot", {**spec, "adapters": adapters})
            argocd.wait_synced(TEAM, team.commit({"loop/hot.yaml": [server]}))

        team.commit({"loop/server.yaml": None})
        commit({"one": first})
        world.wait_reason("ModelServer", "hot", "Verified", condition="AdapterEffective")
        argocd.wait_health(TEAM, "ModelServer/hot", "Healthy")
        pods = [pod["metadata"]["uid"] for pod in world.engine_pods("hot")]
        commit({"one": first, "two": second})
        eventually(
            lambda: (
                [one.get("effectiveReplicas") for one in world.get("ModelServer", "hot")["status"]["adapters"]]
                == [1, 1]
            ),
            what="both adapters work",
        )
        assert [pod["metadata"]["uid"] for pod in world.engine_pods("hot")] == pods
        argocd.wait_health(TEAM, "ModelServer/hot", "Healthy")
        assert_at_rest(argocd, world)


def test_prune_and_revert(argocd: ArgoCD, team: GitRepository, world: World) -> None:
    finish(world)
    gone = team.commit({"loop/training.yaml": None})
    argocd.wait_synced(TEAM, gone)
    eventually(lambda: not world.jobs(OURS[TRAINING]), what="its Jobs are gone")
    assert world.api.get(TRAINING, OURS[TRAINING], namespace=world.namespace) is None
    argocd.wait_synced(TEAM, team.revert())
    world.end_well(world.wait_job(OURS[TRAINING], "prepare"), dataset=DATASET)
    published: dict[str, Any] = {**ADAPTER, "uri": "pvc://adapters/shell-tasks"}
    world.end_well(world.wait_job(OURS[TRAINING], "train"), adapter=published, adopted=True)
    world.wait_reason(TRAINING, OURS[TRAINING], "Adopted", condition="Complete")
    health(argocd, LoRATrainingJob="Healthy")
    assert_at_rest(argocd, world)


def test_a_changed_recipe_is_refused_and_a_revert_mends_it(argocd: ArgoCD, team: GitRepository, world: World) -> None:
    finish(world)
    before = identities(world)
    [training] = objects(EXAMPLES / "loop" / "training.yaml")
    training["spec"]["hyperparameters"]["epochs"] = 2
    team.commit({"loop/training.yaml": [training]})
    argocd.wait_failed(TEAM, "hyperparameters is immutable")
    assert identities(world) == before
    argocd.wait_synced(TEAM, team.revert(), seconds=RETRIED_SECONDS)
    assert identities(world) == before
    health(argocd, LoRATrainingJob="Healthy", BenchmarkRun="Healthy")


@pytest.fixture
def queue(plane: ControlPlane, api: Api, world: World, tmp_path: Path) -> Iterator[str]:
    """A real Kueue, and the name of a cluster queue without quota behind the queue `team`."""
    kueue = Kueue(plane, api, tmp_path)
    kueue.start()
    kueue.create("ResourceFlavor", "any", {})
    kueue.create("ClusterQueue", world.namespace, cluster_queue(quota=0))
    kueue.create("LocalQueue", "team", {"clusterQueue": world.namespace}, namespace=world.namespace)
    yield world.namespace
    kueue.stop()


def cluster_queue(*, quota: int) -> Object:
    """Return the spec of a cluster queue with so many cpus."""
    resources = [{"name": "cpu", "nominalQuota": quota}, {"name": "memory", "nominalQuota": f"{64 * quota}Gi"}]
    groups = [{"coveredResources": ["cpu", "memory"], "flavors": [{"name": "any", "resources": resources}]}]
    return {"namespaceSelector": {}, "resourceGroups": groups}


def test_jobs_that_kueue_stops_and_starts_are_no_difference(
    argocd: ArgoCD, team: GitRepository, world: World, queue: str
) -> None:
    """The last one: from here on Kueue's webhooks judge every Job of the cluster."""
    argocd.wait_synced(TEAM, team.commit({"loop/queued.yaml": [another_training("queued", queueName="team")]}))
    world.wait_reason(TRAINING, "queued", "Queued", condition="QuotaReserved")
    argocd.wait_health(TEAM, f"{TRAINING}/queued", "Progressing")
    assert world.wait_job("queued", "prepare")["spec"]["suspend"]
    assert_at_rest(argocd, world)

    path = f"/apis/kueue.x-k8s.io/v1beta2/clusterqueues/{queue}"
    world.api.patch(path, {"spec": cluster_queue(quota=8)})

    world.wait_reason(TRAINING, "queued", "Admitted", condition="QuotaReserved")
    assert not world.get("Job", world.wait_job("queued", "prepare")["metadata"]["name"])["spec"].get("suspend")
    assert_at_rest(argocd, world)
