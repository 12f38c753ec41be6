"""The demo on a cluster of the user's: what is asked for, what must hold there, and how an obstacle is told."""

from pathlib import Path
from typing import Any, cast

import pytest
from whetstone_dev.__main__ import main
from whetstone_dev.cluster import Cluster
from whetstone_dev.commands import DevError
from whetstone_dev.demo import plan
from whetstone_dev.demo.kube import Kube
from whetstone_dev.demo.obstacles import Patience, claim_obstacle, image_obstacle
from whetstone_dev.demo.preflight import DEFAULT_CLASS, chosen_class, is_ours
from whetstone_dev.demo.target import choose, of_cluster
from whetstone_dev.demo.watch import PATIENCE_SECONDS, DemoError

REGISTRY = "registry.example.com/team"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A kubeconfig of the user's."""
    path = tmp_path / "config"
    path.write_text("{}")
    return path


def test_cluster_and_registry_of_the_users(config: Path) -> None:
    target = choose({"KUBECONFIG": str(config)}, registry=f"{REGISTRY}/", insecure=True, storage_class="nfs")
    assert target.foreign
    assert (target.kubeconfig, target.storage_class) == (config, "nfs")
    assert target.registry is not None
    assert (target.registry.name, target.registry.insecure, target.registry.local) == (REGISTRY, True, False)


def test_nothing_given_is_the_local_cluster() -> None:
    target = choose({})
    assert not target.foreign
    assert target.kubeconfig == Cluster().kubeconfig


@pytest.mark.parametrize(
    ("given", "registry", "expected"),
    [
        (True, None, "give REGISTRY=... too, or unset KUBECONFIG"),
        (False, REGISTRY, "needs KUBECONFIG=... too"),
        (True, f"https://{REGISTRY}", "a name without scheme is needed"),
        (True, "/", "a name without scheme is needed"),
    ],
)
def test_half_of_it_is_refused(config: Path, given: bool, registry: str | None, expected: str) -> None:
    with pytest.raises(DevError, match=expected):
        choose({"KUBECONFIG": str(config)} if given else {}, registry=registry)


def test_kubeconfig_that_is_not_there_is_refused(tmp_path: Path) -> None:
    environment = {"KUBECONFIG": str(tmp_path / "none")}
    for chosen in (lambda: choose(environment, registry=REGISTRY), lambda: of_cluster(environment)):
        with pytest.raises(DevError, match="no such file"):
            chosen()


def test_kubeconfig_of_the_local_cluster_is_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    admin, copy = Cluster().folder / "pki" / "admin.conf", tmp_path / "copy"
    admin.parent.mkdir(parents=True)
    for path in (admin, copy):
        path.write_text("the same")
    assert not choose({"KUBECONFIG": str(copy)}).foreign


def test_api_server_that_does_not_answer_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config"
    path.write_text(
        """{"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}], "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}"""
    )
    monkeypatch.setenv("KUBECONFIG", str(path))
    assert main(["demo", "--dry-run", "--registry", REGISTRY]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("whetstone: API server http://127.0.0.1:9 does not answer: ")


def test_kubeconfig_without_a_context_is_one_line(
    monkeypatch: pytest.MonkeyPatch, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(config))
    assert main(["demo", "--dry-run", "--registry", REGISTRY]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"whetstone: kubeconfig {config}: ")


def test_dry_run_without_a_cluster_says_it_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    with pytest.raises(SystemExit) as ended:
        main(["demo", "--dry-run", "--storage-class", "nfs"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert "would start the local cluster" in out
    assert "PersistentVolumeClaim models, storage class nfs" in out
    assert "ModelServer smollm2" in out
    assert "whetstone-crds" in out


def storage_class(name: str, *, default: bool = False) -> dict[str, Any]:
    annotations = {DEFAULT_CLASS: "true"} if default else {}
    return {"metadata": {"name": name, "annotations": annotations}}


def test_storage_class_is_the_named_or_the_default() -> None:
    classes = [storage_class("fast"), storage_class("shared", default=True)]
    assert chosen_class(classes, None) == "shared"
    assert chosen_class(classes, "fast") == "fast"


@pytest.mark.parametrize(
    ("classes", "wanted", "expected"),
    [
        (["fast"], "nfs", "no storage class nfs: the cluster has fast"),
        (["fast"], None, r"no storage class is the default \(the cluster has fast\): .*STORAGE_CLASS="),
        ([], None, r"no storage class is the default \(the cluster has none\)"),
    ],
)
def test_storage_class_that_is_not_there_is_refused(classes: list[str], wanted: str | None, expected: str) -> None:
    with pytest.raises(DevError, match=expected):
        chosen_class([storage_class(name) for name in classes], wanted)


def test_claims_have_the_class_that_was_asked_for() -> None:
    claims = [obj for obj in plan.examples() if obj["kind"] == "PersistentVolumeClaim"]
    assert claims
    for asked in (None, "nfs"):
        fitted = plan.fit_to_cpu(claims, plan.SMALL, storage_class=asked)
        assert {obj["spec"].get("storageClassName") for obj in fitted} == {asked}


def test_only_namespaces_of_the_demo_are_its_own() -> None:
    assert is_ours(plan.namespace("n"))
    assert is_ours(plan.system_namespace("n"))
    assert not is_ours({"metadata": {"name": "whetstone-demo"}})


def pod(reason: str) -> dict[str, Any]:
    waiting = {"state": {"waiting": {"reason": reason, "message": "not\nfound"}}, "image": "r/i:1", "name": "c"}
    return {"metadata": {"name": "seed"}, "status": {"initContainerStatuses": [waiting]}}


def test_image_that_cannot_be_pulled_is_told() -> None:
    line = image_obstacle([pod("ImagePullBackOff")])
    assert line is not None
    assert line.startswith("pod seed cannot pull r/i:1: not found; ")
    assert image_obstacle([pod("ContainerCreating"), {"metadata": {"name": "new"}}]) is None


def test_claim_without_a_volume_is_told_in_the_provisioners_words() -> None:
    def claim(phase: str) -> dict[str, Any]:
        return {"metadata": {"name": "models"}, "spec": {"storageClassName": "local"}, "status": {"phase": phase}}

    involved = {"kind": "PersistentVolumeClaim", "name": "models"}
    event = {"involvedObject": involved, "reason": "ProvisioningFailed", "message": "only\nReadWriteOnce"}
    line = claim_obstacle([claim("Pending")], [event])
    assert line is not None
    assert line.startswith("storage class local makes no volume for claim models: only ReadWriteOnce; ")
    assert "STORAGE_CLASS=" in line
    assert claim_obstacle([claim("Bound")], [event]) is None
    assert claim_obstacle([claim("Pending")], [{**event, "reason": "WaitForFirstConsumer"}]) is None


class Pods:
    """A namespace with one pod."""

    def __init__(self) -> None:
        self.reason = "ImagePullBackOff"

    def list(self, api_version: str, kind: str, *, namespace: str) -> list[dict[str, Any]]:
        return [pod(self.reason)] if kind == "Pod" else []


def test_obstacle_that_passes_is_waited_for_and_a_lasting_one_is_not() -> None:
    pods, now = Pods(), [0.0]
    patience = Patience(cast("Kube", pods), "n", clock=lambda: now[0])
    for seconds, reason in ((0, "ErrImagePull"), (PATIENCE_SECONDS, "ErrImagePull"), (PATIENCE_SECONDS + 1, "Running")):
        now[0], pods.reason = seconds, reason
        patience.check()
    pods.reason = "ErrImagePull"
    patience.check()
    now[0] += PATIENCE_SECONDS + 1
    with pytest.raises(DemoError, match="cannot pull"):
        patience.check()
