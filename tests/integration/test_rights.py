"""The rights of the chart at a real API server: each verb is used, and each verb that is not granted is refused."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from aiohttp import WSServerHandshakeError
from integration.api import Api, Object, Refused
from integration.conftest import equipped, install_kind
from integration.engine_pods import crashed_engine
from integration.operator_process import (
    USER,
    OperatorProcess,
    account_kubeconfig,
    apply_rights,
    operators_entries,
    running_operator,
)
from integration.world import TIME, World
from support.waiting import eventually
from whetstone_agent.environment.cluster import Cluster, Runner
from whetstone_agent.environment.creation import create_pod, delete_pod, ensure_policy, sweep
from whetstone_agent.environment.manifest import TrialPod, pod_selector, trial_pod
from whetstone_agent.environment.network import NetworkLimit
from whetstone_api.crdgen import KINDS
from whetstone_api.schema import Resource
from whetstone_api.vocabulary import API_VERSION, GROUP
from whetstone_dev.controlplane import ControlPlane
from whetstone_dev.rbac_page import SERVED_NAMESPACE, SYSTEM_NAMESPACE, Right, render, rights

pytestmark = pytest.mark.integration
RUNNER_ACCOUNT = "whetstone-runner"
RUNNER = f"system:serviceaccount:{SERVED_NAMESPACE}:{RUNNER_ACCOUNT}"
NOBODY = f"system:serviceaccount:{SERVED_NAMESPACE}:default"
"""What every account may do, it may too."""
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
Granted = set[tuple[str, str, str]]
"""API group, resource with its subresource, and verb."""
WORKLOADS: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "workloads.kueue.x-k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, stands in for Kueue's"},
    },
    "spec": {
        "group": "kueue.x-k8s.io",
        "scope": "Namespaced",
        "names": {"plural": "workloads", "singular": "workload", "kind": "Workload", "listKind": "WorkloadList"},
        "versions": [
            {
                "name": "v1beta2",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            }
        ],
    },
}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane that asks for the right to block an owner's deletion, as OpenShift does."""
    folder = tmp_path_factory.mktemp("rights")
    with ControlPlane(folder, audited=[USER, RUNNER], admission=["OwnerReferencesPermissionEnforcement"]) as plane:
        yield plane


@pytest.fixture(scope="module")
def api(plane: ControlPlane) -> Iterator[Api]:
    with equipped(plane) as client:
        install_kind(client, WORKLOADS)
        yield client


@pytest.fixture(scope="module")
def granted() -> list[Right]:
    """What the chart grants, cluster-wide."""
    return rights(render())


@pytest.fixture
def world(api: Api) -> World:
    """The served namespace of the chart."""
    return World(api, SERVED_NAMESPACE)


@pytest.fixture
def operator(plane: ControlPlane, api: Api, tmp_path: Path) -> Iterator[OperatorProcess]:
    config = account_kubeconfig(plane, api, tmp_path)
    with running_operator(config, SERVED_NAMESPACE, tmp_path / "operator.log") as process:
        yield process


def of_roles(granted: list[Right], *roles: str) -> Granted:
    return {(right.group, right.resource, right.verb) for right in granted if right.role in roles}


def used(plane: ControlPlane, user: str) -> Granted:
    """Return what a user has asked for and got, and fail if anything was forbidden."""
    found: Granted = set()
    for entry in operators_entries(plane):
        if entry["user"]["username"] != user or not entry.get("objectRef"):
            continue
        asked = entry["objectRef"]
        code = entry["responseStatus"]["code"]
        resource = "/".join(filter(None, (asked["resource"], asked.get("subresource", ""))))
        # Admission answers 403 too, as where a new namespace has no account yet: that is no right that is missing.
        decision = entry.get("annotations", {}).get("authorization.k8s.io/decision")
        assert decision == "allow", f"{decision}: {entry['verb']} {entry['requestURI']}"
        found.add((asked.get("apiGroup", ""), resource, entry["verb"]))
        if entry["verb"] == "patch" and code == 201:
            # Server-side apply of what is not there yet needs both rights.
            found.add((asked.get("apiGroup", ""), resource, "create"))
    return found


def turn(world: World, *, ready: bool, containers: list[Object] | None = None) -> None:
    """Let the engine be ready, or not."""
    [pod] = eventually(world.engine_pods, what="the engine's pod")
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": TIME}
    status = {"phase": "Running", "startTime": TIME, "conditions": [condition]}
    world.set_pod_status(pod, {**status, "containerStatuses": containers or []})


def work_through(world: World, operator: OperatorProcess) -> None:
    """Let the operator do everything that it does."""
    world.claims()
    keys = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "stringData": {"team": "k"}}
    world.api.create(keys, namespace=world.namespace)
    names = [{"name": "team", "secretRef": {"name": "keys", "key": "team"}}]
    world.serve(apiKeys=names, podTemplate={"metadata": {"labels": {"team": "a"}}})
    world.start_engines()
    world.api.merge("ModelServer", "server", {"spec": {"limits": {"requestBytes": 4096}}}, namespace=world.namespace)
    # Equal words are Events of their own for some times; then the last one is counted up.
    for _ in range(6):
        turn(world, ready=False, containers=[crashed_engine(1, "Error")])
        world.wait_reason("ModelServer", "server", "EngineFailed", condition="Stalled")
        world.start_engines()
    world.benchmark()
    run = world.wait_job("run", "run")
    pod = eventually(lambda: world.pods(run), what="the runner's pod")[0]
    path = f"benchmarkruns/{world.namespace}/run"
    body = {"phase": "Run", "step": 1, "maxSteps": 9}
    assert operator.report(path, token=world.pod_token(pod), body=body) == 202
    # Resources that change make a Job go for another one.
    change = {"spec": {"resources": {"requests": {"cpu": "1"}}}}
    world.api.merge("BenchmarkRun", "run", change, namespace=world.namespace)
    first = run["metadata"]["uid"]
    [other] = eventually(lambda: [job for job in runs(world) if job["metadata"]["uid"] != first], what="another Job")
    # A Job that somebody takes the label from is there all the same: it is not created again, but asked for.
    unlabelled = {"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}}
    world.api.merge("Job", other["metadata"]["name"], unlabelled, namespace=world.namespace)
    # What is not there yet is asked for; what is there, watches tell.
    world.serve("waiting", adapters=[{"name": "a", "trainingJobRef": {"name": "absent"}}])
    world.benchmark("waiting", baselineRef={"name": "absent"})
    world.train("waiting", baseModel={"modelServerRef": {"name": "absent"}})
    hold_and_queue(world)


def runs(world: World) -> list[Object]:
    """Return the Jobs of the run."""
    return world.jobs("run", kind="benchmark-run")


def hold_and_queue(world: World) -> None:
    """Suspend a Job that has no queue and one that has."""
    workspace = {"claimTemplate": {"size": "1Gi"}}
    world.train("held", workspace=workspace)
    job = world.wait_job("held", "prepare")["metadata"]["name"]
    suspend = {"spec": {"suspend": True}}
    world.api.merge("LoRATrainingJob", "held", suspend, namespace=world.namespace)
    eventually(lambda: world.get("Job", job)["spec"]["suspend"], what="the Job is suspended")
    world.train("queued", queueName="team", output={"adapter": {"uri": "pvc://adapters/q"}})
    uid = world.wait_job("queued", "prepare")["metadata"]["uid"]
    labels = {"kueue.x-k8s.io/job-uid": uid}
    path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{world.namespace}/workloads"
    body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": "w", "labels": labels}}
    world.api.raw("POST", path, {**body, "spec": {"active": True}})
    world.api.merge("LoRATrainingJob", "queued", suspend, namespace=world.namespace)
    eventually(lambda: world.api.raw("GET", f"{path}/w")["spec"]["active"] is False, what="the Workload is held")


def test_every_right_of_the_operator_is_used_and_none_is_missing(
    plane: ControlPlane, world: World, operator: OperatorProcess, granted: list[Right]
) -> None:
    work_through(world, operator)
    expected = of_roles(granted, "whetstone-operator", "whetstone-leader", "whetstone-token-reviewer")
    # Not asked for by a request of its own: see the test of owner references.
    expected -= {(GROUP, f"{kind.plural}/finalizers", "update") for kind in KINDS}

    # Asked for only where a pod reports that its watch has not told of yet, or tells of no more.
    rarely = {("", "pods", "get")}
    assert rarely <= expected

    def all_used() -> bool:
        assert expected - rarely - used(plane, USER) == set()
        return True

    eventually(all_used, what="each right is used")
    assert used(plane, USER) - expected == set()


@pytest.fixture(scope="module")
def writer(api: Api) -> str:
    """A user that may create ConfigMaps and do nothing else."""
    root = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{SERVED_NAMESPACE}"
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}]
    api.raw("POST", f"{root}/roles", {"metadata": {"name": "writer"}, "rules": rules})
    group = "rbac.authorization.k8s.io"
    bound = {
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "writer"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "writer"}],
    }
    api.raw("POST", f"{root}/rolebindings", {"metadata": {"name": "writer"}, **bound})
    return "writer"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind_name)
def test_owner_references_of_children_need_the_right_to_finalizers(
    api: Api, world: World, writer: str, kind: type[Resource]
) -> None:
    made = {"ModelServer": world.serve, "LoRATrainingJob": world.train, "BenchmarkRun": world.benchmark}
    name = f"owner-{kind.plural}"
    uid = made[kind.kind_name](name)["metadata"]["uid"]
    owner = {"apiVersion": API_VERSION, "kind": kind.kind_name, "name": name, "uid": uid}
    metadata = {"name": name, "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}]}
    child = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}

    def refused() -> bool:
        # Until its role is known to the API server, the writer is refused for another reason.
        with pytest.raises(Refused, match="cannot set blockOwnerDeletion"):
            api.acting_as(writer).create(child, namespace=world.namespace)
        return True

    eventually(refused, what="a reference without the right is refused")
    api.acting_as(USER).create(child, namespace=world.namespace)


def served(api: Api) -> Granted:
    """Return group, resource and verb of all that the API server serves, subresources too."""
    lists = [("", "/api/v1")]
    for group in api.raw("GET", "/apis")["groups"]:
        lists += [(group["name"], f"/apis/{one['groupVersion']}") for one in group["versions"]]
    found = {
        (group, one["name"], verb)
        for group, path in lists
        for one in api.raw("GET", path)["resources"]
        for verb in one["verbs"]
    }
    # Rights to finalizers exist without being served.
    return found | {(GROUP, f"{kind.plural}/finalizers", verb) for kind in KINDS for verb in ("get", "patch", "update")}


def may(api: Api, user: str, right: tuple[str, str, str], *, namespace: str) -> bool:
    """Ask the API server whether an account may do something in a namespace; in the cluster where that is empty."""
    group, name, verb = right
    resource, _, subresource = name.partition("/")
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{user.split(':')[2]}", "system:authenticated"]
    asked = {"group": group, "resource": resource, "subresource": subresource, "verb": verb, "namespace": namespace}
    spec = {"user": user, "groups": groups, "resourceAttributes": asked}
    answer = api.raw("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": spec})
    return bool(answer["status"]["allowed"])


def allowed(api: Api, user: str, *, namespace: str = "") -> Granted:
    """Return all that the API server would let an account do, beyond what it lets every account do."""
    found = {right for right in served(api) if may(api, user, right, namespace=namespace)}
    return {right for right in found if not may(api, NOBODY, right, namespace=namespace)}


def test_nothing_is_allowed_but_what_is_granted(api: Api, granted: list[Right]) -> None:
    everywhere = of_roles(granted, "whetstone-operator", "whetstone-token-reviewer")
    assert allowed(api, USER, namespace=SERVED_NAMESPACE) == everywhere
    leader = of_roles(granted, "whetstone-leader")
    assert allowed(api, USER, namespace=SYSTEM_NAMESPACE) == everywhere | leader
    assert allowed(api, RUNNER, namespace=SERVED_NAMESPACE) == of_roles(granted, RUNNER_ACCOUNT)
    assert allowed(api, RUNNER) == set()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/secrets"),
        ("GET", f"/api/v1/namespaces/{SERVED_NAMESPACE}/secrets"),
        ("DELETE", f"/api/v1/namespaces/{SERVED_NAMESPACE}/secrets/keys"),
        ("POST", f"/api/v1/namespaces/{SERVED_NAMESPACE}/serviceaccounts/default/token"),
        ("POST", f"/api/v1/namespaces/{SERVED_NAMESPACE}/pods/any/exec"),
        ("GET", "/api/v1/nodes"),
        ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"),
        ("DELETE", f"/apis/{API_VERSION}/namespaces/{SERVED_NAMESPACE}/modelservers/server"),
    ],
)
def test_request_without_the_right_is_refused(api: Api, method: str, path: str) -> None:
    with pytest.raises(Refused, match=r"is forbidden: User .*whetstone-operator") as refused:
        api.acting_as(USER).raw(method, path)
    assert refused.value.status == 403


def test_rights_end_at_the_watched_namespaces(plane: ControlPlane, api: Api) -> None:
    narrow = rights(render(f"watchNamespaces={{{SERVED_NAMESPACE}}}"))
    assert of_roles(narrow, "whetstone-operator") == of_roles(rights(render()), "whetstone-operator")
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/whetstone-operator"
    wide = api.raw("GET", bindings)
    api.raw("DELETE", bindings)
    try:
        apply_rights(plane, f"watchNamespaces={{{SERVED_NAMESPACE}}}")
        secrets = ("", "secrets", "get")
        eventually(lambda: may(api, USER, secrets, namespace=SERVED_NAMESPACE), what="rights in the team's namespace")
        eventually(lambda: not may(api, USER, secrets, namespace="default"), what="no rights elsewhere")
        assert allowed(api, USER) == of_roles(narrow, "whetstone-token-reviewer")
    finally:
        kept = {key: wide[key] for key in ("roleRef", "subjects")}
        api.raw("POST", bindings.rpartition("/")[0], {"metadata": {"name": "whetstone-operator"}, **kept})


@pytest.fixture
async def runner(
    plane: ControlPlane, api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Runner]:
    """A runner with the account's own credentials, in a pod of its own."""
    config = account_kubeconfig(plane, api, tmp_path, namespace=SERVED_NAMESPACE, account=RUNNER_ACCOUNT)
    container = {"name": "main", "image": "registry.test/benchmark:1"}
    spec = {"serviceAccountName": RUNNER_ACCOUNT, "containers": [container]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "runner"}, "spec": spec}
    pod = api.create(body, namespace=SERVED_NAMESPACE)
    monkeypatch.setenv("KUBECONFIG", str(config))
    monkeypatch.setenv("POD_NAMESPACE", SERVED_NAMESPACE)
    monkeypatch.setenv("POD_NAME", "runner")
    monkeypatch.setenv("POD_UID", pod["metadata"]["uid"])
    yield Runner.from_environment()
    await Cluster.close_shared()


async def test_every_right_of_the_runner_is_used_and_none_is_missing(
    plane: ControlPlane, runner: Runner, granted: list[Right]
) -> None:
    cluster = await Cluster.shared()
    await cluster.runner_pod(runner)
    limit = NetworkLimit()
    policy = limit.policy(runner=runner, benchmark_run="run")
    await ensure_policy(cluster, policy)
    watch = cluster.watch_pods(namespace=runner.namespace, selector=pod_selector("run"))
    manifest = trial_pod(
        TrialPod(
            runner=runner,
            benchmark_run="run",
            session="s",
            nonce="1",
            image="registry.test/task:1",
            deadline_seconds=60,
            network_key=limit.key(runner),
        )
    )
    await create_pod(cluster, manifest)
    name = manifest["metadata"]["name"]
    await watch.until(name, lambda state: state)
    # No node runs it, which the API server says only to who may open the connection.
    with pytest.raises(WSServerHandshakeError) as refused:
        await cluster.open_exec(namespace=runner.namespace, pod=name, container="main", command=["true"], stdin=False)
    assert refused.value.status != 403
    await delete_pod(cluster, runner.namespace, name)
    gone = {**policy, "metadata": {**policy["metadata"], "name": "run-net-left", "ownerReferences": []}}
    await ensure_policy(cluster, gone)
    await sweep("run")
    expected = of_roles(granted, RUNNER_ACCOUNT)

    def all_used() -> bool:
        # Kubernetes 1.35 and newer ask for `create` where a GET opens a connection; the audit log still says `get`.
        found = used(plane, RUNNER)
        assert expected - found <= {("", "pods/exec", "create")}
        assert found - expected == set()
        return True

    eventually(all_used, what="each right is used")
