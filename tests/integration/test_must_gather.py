"""`whetstone must-gather` against a real API server: what it collects, what it removes, and with how few rights."""

import base64
import json
import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from integration.api import Api
from integration.operator_process import SYSTEM_NAMESPACE, OperatorProcess, account_kubeconfig
from integration.world import TIME, World
from support.stand_in_kubelet import node_with_logs
from support.waiting import eventually
from whetstone_cli.__main__ import main
from whetstone_dev.controlplane import ControlPlane

pytestmark = pytest.mark.integration
NODE = "node-with-logs"
CANARY = "canary-5f1e77a0"
"""Begins each of the values that must not get out."""
SECRET = f"{CANARY}-in-a-secret"
Command = Callable[..., int]


@pytest.fixture
def command(control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command, as the administrator or whoever a kubeconfig names."""
    monkeypatch.setenv("PATH", str(control_plane.kubectl.parent), prepend=os.pathsep)

    def call(*arguments: str, kubeconfig: Path = control_plane.kubeconfig) -> int:
        return main(["must-gather", *arguments, "--kubeconfig", str(kubeconfig)])

    return call


@pytest.fixture
def node(control_plane: ControlPlane, api: Api) -> Iterator[None]:
    """A node; its logs hold a Secret's value, and credentials that no Secret holds."""

    def log(pod: str, container: str, previous: bool) -> str:
        before = "the process before\n" if previous else ""
        leaks = f"token={CANARY}-pair\nAuthorization: Bearer {CANARY}-bearer-of-bad-news\nkey {SECRET}\n"
        return f"{before}{container} of {pod} at work\n{leaks}"

    with node_with_logs(control_plane, api, NODE, log):
        yield


def start_on_node(world: World, pod: dict[str, Any]) -> None:
    """Let a pod run on the node, its engine in its second life."""
    name = pod["metadata"]["name"]
    target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    world.api.raw("POST", f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{name}/binding", binding)
    statuses = [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "ready": True,
            "restartCount": int(container["name"] == "engine"),
            "state": {"running": {"startedAt": TIME}},
        }
        for container in pod["spec"]["containers"]
    ]
    status = {"phase": "Running", "startTime": TIME, "containerStatuses": statuses}
    world.api.merge("Pod", name, {"status": status}, namespace=pod["metadata"]["namespace"], status=True)


@pytest.fixture
def troubled(world: World, operator: OperatorProcess, node: None) -> World:
    """A server with a pod, a training that waits for its claims, and a canary wherever a user may put one."""
    world.claims("models")
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hub"}, "stringData": {"token": SECRET}}
    world.api.create(secret, namespace=world.namespace)
    key = {"name": "team", "secretRef": {"name": "hub", "key": "token"}}
    env = [{"name": "PROXY_PASSWORD", "value": f"{CANARY}-in-env"}]
    server = world.serve(apiKeys=[key], engine={"env": env})
    note = {"kubectl.kubernetes.io/last-applied-configuration": f"{CANARY}-applied", "seen": f"as {SECRET}"}
    world.api.merge("ModelServer", "server", {"metadata": {"annotations": note}}, namespace=world.namespace)
    for pod in eventually(world.engine_pods, what="pods of the server"):
        start_on_node(world, pod)
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "told"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "type": "Warning",
        "reason": "Told",
        "action": "Tell",
        "note": f"the token is {SECRET}",
        "reportingController": "test",
        "reportingInstance": "test",
        "regarding": {
            "apiVersion": "whetstone.dev/v1alpha1",
            "kind": "ModelServer",
            "name": "server",
            "namespace": world.namespace,
            "uid": server["metadata"]["uid"],
        },
    }
    world.api.create(event, namespace=world.namespace)
    world.train()
    world.wait_events("ClaimNotFound")
    return world


def secrets_of(world: World) -> set[bytes]:
    """Return every value of every Secret of the namespace, as it is and as the API server encodes it."""
    data = [one.get("data") or {} for one in world.api.list("Secret", namespace=world.namespace)]
    encoded = {value.encode() for one in data for value in one.values()}
    return {form for value in encoded for form in (value, base64.b64decode(value))} - {b""}


def items(folder: Path, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / f"{name}.json").read_text())["items"]
    return found


def test_everything_is_collected_and_no_secret_is(troubled: World, command: Command, tmp_path: Path) -> None:
    operator_pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "operator-1", "labels": {"app.kubernetes.io/part-of": "whetstone"}},
        "spec": {
            "serviceAccountName": "whetstone-operator",
            "containers": [{"name": "operator", "image": "operator:1"}],
        },
    }
    start_on_node(troubled, troubled.api.create(operator_pod, namespace=SYSTEM_NAMESPACE))
    out = tmp_path / "out"
    try:
        assert command("-n", troubled.namespace, "-o", str(out)) == 0
    finally:
        troubled.api.delete("Pod", "operator-1", namespace=SYSTEM_NAMESPACE)
    place = out / "namespaces" / troubled.namespace
    for kind in ("modelservers", "loratrainingjobs", "deployments", "pods", "services", "configmaps"):
        assert items(place, kind), kind
    assert {"ClaimNotFound", "Told"} <= {event["reason"] for event in items(place, "events")}
    [pod] = troubled.engine_pods()
    logs = place / "logs" / pod["metadata"]["name"]
    assert {path.name for path in logs.iterdir()} == {"engine.log", "engine.previous.log", "sidecar.log"}
    assert "engine of" in (logs / "engine.log").read_text()
    assert "the process before" in (logs / "engine.previous.log").read_text()
    system = out / "namespaces" / SYSTEM_NAMESPACE
    assert "operator of operator-1 at work" in (system / "logs" / "operator-1" / "operator.log").read_text()
    assert any(lease["spec"].get("holderIdentity") for lease in items(system, "leases"))
    assert "serverVersion" in (out / "versions.txt").read_text()
    assert "image: operator:1" in (out / "versions.txt").read_text()
    summary = (out / "summary.txt").read_text()
    assert "what to do about ClaimNotFound: Create the PersistentVolumeClaim" in summary
    secrets = {secret["metadata"]["name"]: secret["keys"] for secret in items(place, "secrets")}
    assert set(secrets["hub"]) == {"token"}
    assert "server-access" in secrets
    forbidden = {CANARY.encode(), *secrets_of(troubled)}
    for path in (path for path in out.rglob("*") if path.is_file()):
        content = path.read_bytes()
        assert not [value for value in forbidden if value in content], path


def test_an_archive_has_one_folder_and_is_its_owners_alone(
    world: World, command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "case.tar.gz"
    assert command("-n", world.namespace, "-o", str(out)) == 0
    with tarfile.open(out) as archive:
        names = archive.getnames()
    assert {name.partition("/")[0] for name in names} == {"case"}
    assert {"case/summary.txt", "case/versions.txt"} <= set(names)
    assert out.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["case.tar.gz"]
    assert command("-n", world.namespace, "-o", str(out)) == 2
    assert "exists; give another -o" in capsys.readouterr().err


def test_with_few_rights_it_says_what_it_could_not_read(
    control_plane: ControlPlane,
    world: World,
    command: Command,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    world.serve(apiKeys=[{"name": "team", "secretRef": {"name": "hub", "key": "token"}}])
    world.account("reader")
    rights = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{world.namespace}"
    rule = {"apiGroups": ["whetstone.dev"], "resources": ["modelservers"], "verbs": ["list"]}
    world.api.raw("POST", f"{rights}/roles", {"metadata": {"name": "reader"}, "rules": [rule]})
    subject = {"kind": "ServiceAccount", "name": "reader", "namespace": world.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    binding = {"metadata": {"name": "reader"}, "roleRef": role, "subjects": [subject]}
    world.api.raw("POST", f"{rights}/rolebindings", binding)
    kubeconfig = account_kubeconfig(control_plane, world.api, tmp_path, namespace=world.namespace, account="reader")
    out = tmp_path / "out"
    assert command("-n", world.namespace, "-o", str(out), kubeconfig=kubeconfig) == 0
    [server] = items(out / "namespaces" / world.namespace, "modelservers")
    assert server["metadata"]["name"] == "server"
    told = capsys.readouterr().out
    summary = (out / "summary.txt").read_text()
    for what in ("get pods", "get loratrainingjobs.whetstone.dev", "get leases", "get nodes", "keys of Secret"):
        assert f"not read: {what}" in told or f"not read: names of the {what}" in told, told
        assert what in summary
    assert "cannot list resource" in summary


def test_a_dry_run_asks_and_writes_nothing(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = tmp_path / "nowhere.kubeconfig"
    out = tmp_path / "out"
    assert command("-n", "team", "-o", str(out), "--dry-run", kubeconfig=nowhere) == 0
    told = capsys.readouterr().out
    assert "kubectl get modelservers.whetstone.dev --namespace=team\n" in told
    assert "kubectl get leases.coordination.k8s.io --namespace=whetstone-system\n" in told
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_that_does_not_answer_leaves_nothing_behind(
    control_plane: ControlPlane, command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = control_plane.kubeconfig.read_text().replace(control_plane.server, "https://127.0.0.1:1")
    (tmp_path / "config").write_text(text)
    assert command("-n", "team", "-o", str(tmp_path / "out"), kubeconfig=tmp_path / "config") == 1
    assert "the cluster cannot be asked" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["config"]
