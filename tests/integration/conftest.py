"""A real API server with etcd and the controller manager, and no node: what a kubelet would do, tests do."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from integration.api import Api, Object
from integration.engine_pods import Kubelet
from integration.operator_process import (
    USER,
    OperatorProcess,
    account_kubeconfig,
    install_rights,
    operators_entries,
    running_operator,
)
from integration.world import World
from support.waiting import eventually
from whetstone_dev.controlplane import ControlPlane

CRDS = Path(__file__).parents[2] / "crds"


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of this test run's own, on the loopback."""
    with ControlPlane(tmp_path_factory.mktemp("control-plane"), audited=[USER]) as plane:
        yield plane


@pytest.fixture(scope="session")
def api(control_plane: ControlPlane) -> Iterator[Api]:
    """The administrator's client, with the kinds of Whetstone installed."""
    with Api(control_plane.server, control_plane.pki.folder) as client:
        install_kinds(client)
        yield client


@contextmanager
def equipped(plane: ControlPlane) -> Iterator[Api]:
    """Be the administrator of a control plane of a module's own, with the kinds and the rights of Whetstone there."""
    with Api(plane.server, plane.pki.folder) as client:
        install_kinds(client)
        install_rights(plane, client)
        yield client


def install_kinds(client: Api) -> None:
    """Install the kinds of Whetstone and wait until they are served."""
    for path in sorted(CRDS.glob("*.yaml")):
        install_kind(client, yaml.safe_load(path.read_text()))


def install_kind(client: Api, definition: Object) -> None:
    """Install a kind and wait until it is served."""
    collection = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    client.raw("POST", collection, definition)
    name = definition["metadata"]["name"]
    eventually(lambda: is_established(client.raw("GET", f"{collection}/{name}")), what=f"{name} served")


def is_established(definition: Object) -> bool:
    """Return whether the API server serves a definition's kind."""
    status = definition.get("status")
    conditions = (status.get("conditions") or []) if isinstance(status, dict) else []
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


@pytest.fixture
def namespace(api: Api) -> Iterator[str]:
    """A namespace of the test's own, deleted afterwards."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    api.raw("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    api.raw("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture(scope="session")
def operator_kubeconfig(control_plane: ControlPlane, api: Api, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Credentials of the operator's service account, with the rights of the chart."""
    install_rights(control_plane, api)
    return account_kubeconfig(control_plane, api, tmp_path_factory.mktemp("operator"))


@pytest.fixture
def operator(operator_kubeconfig: Path, namespace: str, tmp_path: Path) -> Iterator[OperatorProcess]:
    """The running operator, serving the test's namespace only; it must not have logged an unexpected error."""
    with running_operator(operator_kubeconfig, namespace, tmp_path / "operator.log") as process:
        yield process


@pytest.fixture
def kubelet(world: World, operator: OperatorProcess, tmp_path: Path) -> Iterator[Kubelet]:
    """The engine pods of the test's namespace run."""
    world.claims()
    with Kubelet(world, operator, tmp_path / "node") as running:
        yield running


@pytest.fixture
def operators_requests(control_plane: ControlPlane) -> Callable[[], list[str]]:
    """What the operator has asked the API server for, its Lease aside: verb and address, in the server's own list."""

    def requests() -> list[str]:
        asked = [f"{entry['verb']} {entry['requestURI']}" for entry in operators_entries(control_plane)]
        return [one for one in asked if "/leases" not in one]

    return requests


@pytest.fixture
def world(api: Api, namespace: str) -> World:
    """The test's namespace and what happens in it."""
    return World(api, namespace)


@pytest.fixture
def serving(world: World, operator: OperatorProcess) -> World:
    """A namespace with a serving server, and all that runs need."""
    world.claims()
    world.account()
    world.serve()
    world.start_engines()
    return world
