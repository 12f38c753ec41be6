"""Two installations that are meant to work on one namespace: one does, the other says so and leaves it alone."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from integration.api import Api
from integration.operator_process import SYSTEM_NAMESPACE, OperatorProcess
from integration.world import World
from support.waiting import eventually
from whetstone_api.vocabulary import CLAIM_MARK

pytestmark = pytest.mark.integration
ANSWER_SECONDS = 4


class Installation:
    """An operator of an installation of its own, which its Lease and its images tell from others.

    Args:
        kubeconfig: Its credentials.
        name: Its name.
        namespaces: What it is to work on.
        folder: For its log.
    """

    def __init__(self, kubeconfig: Path, name: str, namespaces: list[str], folder: Path) -> None:
        lease = f"{name}-{namespaces[0]}"
        self.name = f"{SYSTEM_NAMESPACE}/{lease}"
        self.image = f"registry.test/server:{name}"
        self.process = OperatorProcess(
            kubeconfig=kubeconfig,
            namespace=",".join(namespaces),
            log=folder / f"{name}.log",
            environment={
                "WHETSTONE_LEASE": lease,
                "WHETSTONE_SERVER_IMAGE": self.image,
                "WHETSTONE_ANSWER_SECONDS": str(ANSWER_SECONDS),
                "WHETSTONE_RESYNC_SECONDS": "1",
            },
        )

    def refused(self, world: World) -> bool:
        """Whether it says that a namespace is another installation's; False also while it does not answer."""
        try:
            return self.process.metric("whetstone_namespace_refused", namespace=world.namespace) == 1
        except httpx.HTTPError:
            return False


@pytest.fixture
def other_world(api: Api, world: World) -> Iterator[World]:
    """Another namespace."""
    name = f"{world.namespace}-b"
    api.raw("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    yield World(api, name)
    api.raw("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture
def first(operator_kubeconfig: Path, world: World, tmp_path: Path) -> Installation:
    """An installation for the namespace."""
    return Installation(operator_kubeconfig, "first", [world.namespace], tmp_path)


@pytest.fixture
def wider(operator_kubeconfig: Path, world: World, other_world: World, tmp_path: Path) -> Installation:
    """An installation for the same namespace and another one."""
    return Installation(operator_kubeconfig, "wider", [world.namespace, other_world.namespace], tmp_path)


@pytest.fixture
def same(operator_kubeconfig: Path, world: World, tmp_path: Path) -> Installation:
    """Another installation for the same namespace alone."""
    return Installation(operator_kubeconfig, "same", [world.namespace], tmp_path)


@pytest.fixture(autouse=True)
def stopped(first: Installation, wider: Installation, same: Installation) -> Iterator[None]:
    """End all of them, whatever happens."""
    with ExitStack() as stack:
        for one in (first, wider, same):
            stack.callback(one.process.stop)
        yield


def worker(world: World) -> str:
    """Return the image by which the engine pods of the server `server` tell whose operator made them."""
    deployment = world.api.get("Deployment", "server-engine", namespace=world.namespace)
    assert deployment is not None, "no Deployment yet"
    images = [one["image"] for one in deployment["spec"]["template"]["spec"]["containers"] if one["name"] == "sidecar"]
    return str(images[0])


def wait_worker(world: World, installation: Installation) -> None:
    """Wait until the server is as an installation makes it."""
    eventually(lambda: worker(world) == installation.image, what=f"engines of {installation.name}", seconds=60)


def looks(installation: Installation) -> float:
    return installation.process.metric("whetstone_reconcile_total", controller="modelservers")


def test_second_installation_leaves_a_namespace_alone_and_works_on_its_others(
    world: World, other_world: World, first: Installation, wider: Installation
) -> None:
    for one in (world, other_world):
        one.claims()
        one.serve()
    first.process.start()
    wait_worker(world, first)
    wider.process.start()

    wait_worker(other_world, wider)
    eventually(lambda: looks(wider) >= 2, what="a look at both servers")
    assert worker(world) == first.image
    assert (wider.refused(world), wider.refused(other_world)) == (True, False)
    assert f"{world.namespace} is worked on by the operator of {first.name}" in wider.process.log
    # The first one answers whenever it is asked, and so keeps the namespace.
    mark = world.api.get("ConfigMap", CLAIM_MARK, namespace=world.namespace)
    assert mark is not None
    asked = mark["data"].get("asked")

    def answered_anew() -> bool:
        data = world.get("ConfigMap", CLAIM_MARK)["data"]
        return data.get("asked") != asked and data.get("answered") == data.get("asked")

    eventually(answered_anew, what="another answer", seconds=30)
    assert worker(world) == first.image
    assert wider.refused(world)


def test_installation_with_nothing_to_work_on_is_not_ready_until_the_other_is_gone(
    world: World, first: Installation, same: Installation
) -> None:
    world.claims()
    world.serve()
    first.process.start()
    wait_worker(world, first)
    same.process.launch()
    eventually(lambda: same.refused(world), what="a refusal", seconds=60)
    assert not same.process.ready()

    first.process.kill()

    wait_worker(world, same)
    eventually(same.process.ready, what="the second is ready")
    assert not same.refused(world)
    # Who comes back finds that somebody has followed, and does not fight.
    first.process.launch()
    eventually(lambda: first.refused(world), what="a refusal", seconds=60)
    assert worker(world) == same.image
