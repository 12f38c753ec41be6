"""The demo looks at a cluster of the user's before it changes anything there, and later removes only its own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client
from support.waiting import eventually
from whetstone_dev.commands import DevError
from whetstone_dev.controlplane import ControlPlane
from whetstone_dev.demo import install, plan
from whetstone_dev.demo.down import take_down
from whetstone_dev.demo.kube import Kube, read_manifests
from whetstone_dev.demo.preflight import DEFAULT_CLASS, check
from whetstone_dev.demo.target import Target
from whetstone_dev.images import Registry
from whetstone_dev.places import CHECKOUT

REGISTRY = Registry(name="registry.example.com", address="registry.example.com")
CRD = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster that has never seen Whetstone."""
    with ControlPlane(tmp_path_factory.mktemp("foreign")) as plane:
        yield plane


@pytest.fixture(scope="module")
def kube(plane: ControlPlane) -> Kube:
    """Its administrator, with one storage class that is the default."""
    kube = Kube.connect(plane.kubeconfig)
    annotations = {DEFAULT_CLASS: "true"}
    metadata = {"name": "shared", "annotations": annotations}
    kube.apply(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": metadata,
            "provisioner": "example.com/shared",
        }
    )
    return kube


@pytest.fixture(scope="module")
def target(plane: ControlPlane) -> Target:
    """The cluster as the user names it."""
    return Target(kubeconfig=plane.kubeconfig, registry=REGISTRY)


def labelled(name: str, labels: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def test_cluster_with_all_that_is_needed_passes(kube: Kube, target: Target) -> None:
    assert check(kube, target, namespace="demo") == "shared"


def test_user_without_rights_is_told_which(kube: Kube, plane: ControlPlane) -> None:
    path: Path = plane.pki.kubeconfig("guest", subject="/CN=guest", server=plane.server)
    expected = "may not: create namespaces, delete namespaces, list storageclasses, .*get pods/log"
    with pytest.raises(DevError, match=expected):
        check(Kube.connect(path), Target(kubeconfig=path, registry=REGISTRY), namespace="demo")


def test_namespace_of_somebody_else_is_never_taken(kube: Kube, target: Target) -> None:
    kube.apply(labelled("theirs", {}))
    with pytest.raises(DevError, match="namespace theirs is there and the demo did not make it"):
        check(kube, target, namespace="theirs")
    take_down(target, namespace="theirs")
    assert kube.get("v1", "Namespace", name="theirs") is not None


def test_demo_down_removes_the_demos_namespaces(kube: Kube, target: Target) -> None:
    kube.apply(plan.namespace("demo"))
    kube.apply(plan.system_namespace(install.SYSTEM_NAMESPACE))
    assert check(kube, target, namespace="demo") == "shared"
    take_down(target, namespace="demo")
    assert [kube.get("v1", "Namespace", name=name) for name in ("demo", install.SYSTEM_NAMESPACE)] == [None, None]
    take_down(target, namespace="demo")


def is_listed(kube: Kube, definition: dict[str, Any]) -> bool:
    """Whether the API server lists a kind's objects: one that is deleted before that can stay for minutes.

    Deleting a kind lists its objects, and the server tries late again when its storage of them is still being set up.
    """
    spec = definition["spec"]
    try:
        client.CustomObjectsApi(kube._api).list_cluster_custom_object(
            spec["group"], spec["versions"][0]["name"], spec["names"]["plural"]
        )
    except client.ApiException:
        return False
    return True


def test_installation_of_somebody_else_is_never_replaced(kube: Kube, target: Target) -> None:
    definitions = read_manifests(CHECKOUT / "crds")
    for definition in definitions:
        kube.apply(definition)
    eventually(lambda: all(is_listed(kube, definition) for definition in definitions), what="the kinds served")
    try:
        with pytest.raises(DevError, match="Whetstone is installed on this cluster and the demo did not do it"):
            check(kube, target, namespace="demo")
        take_down(target, namespace="demo")
        assert all(kube.get(*CRD, name=definition["metadata"]["name"]) for definition in definitions)
    finally:
        for definition in definitions:
            kube.delete(*CRD, name=definition["metadata"]["name"])
    eventually(
        lambda: all(kube.get(*CRD, name=definition["metadata"]["name"]) is None for definition in definitions),
        what="the kinds gone",
    )


def test_charts_of_the_demo_go_with_it_and_kinds_in_use_stay(kube: Kube, target: Target) -> None:
    """Only the CRD chart: the operator's pod would wait for a node."""
    kube.apply(plan.system_namespace(install.SYSTEM_NAMESPACE))
    command, _ = install.upgrades(target.kubeconfig, Path("values.json"))
    install.run(command)
    assert install.releases(target.kubeconfig, demo_only=True) == [install.CRDS]
    assert check(kube, target, namespace="demo") == "shared"
    (server,) = (obj for obj in plan.examples() if obj["kind"] == "ModelServer")
    kube = Kube.connect(target.kubeconfig)
    kube.apply(server, namespace="default")
    take_down(target, namespace="demo")
    assert install.releases(target.kubeconfig, demo_only=False) == []
    assert kube.get(*CRD, name="modelservers.whetstone.dev") is not None
    kube.delete(server["apiVersion"], server["kind"], name=server["metadata"]["name"], namespace="default")
