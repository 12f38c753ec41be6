"""An upgrade that brings other images of ours restarts engines a server at a time, and stops at one that fails."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from integration.api import Object
from integration.operator_process import OperatorProcess
from integration.world import World
from support.waiting import eventually

pytestmark = pytest.mark.integration
SERVERS = ("a", "b", "c")
OLD, NEW = "registry.test/server:old", "registry.test/server:new"
Start = Callable[..., OperatorProcess]


@pytest.fixture
def start(world: World, operator_kubeconfig: Path, tmp_path: Path) -> Iterator[Start]:
    """Start the operator of a release instead of the one that runs."""
    running: list[OperatorProcess] = []
    log = tmp_path / "operator.log"

    def begin(image: str, *, at_a_time: int = 1) -> OperatorProcess:
        for process in running:
            process.stop()
        environment = {"WHETSTONE_SERVER_IMAGE": image, "WHETSTONE_ENGINE_UPGRADES": str(at_a_time)}
        process = OperatorProcess(
            kubeconfig=operator_kubeconfig, namespace=world.namespace, log=log, environment=environment
        )
        running.append(process)
        process.start()
        return process

    yield begin
    for process in running:
        process.stop()
    assert "Traceback" not in log.read_text(), log.read_text()[-6000:]


@pytest.fixture
def fleet(world: World, start: Start) -> World:
    """Servers that serve with the old image."""
    start(OLD)
    world.claims()
    for name in SERVERS:
        world.serve(name)
    for name in SERVERS:
        world.start_engines(name)
    return world


def deployment(world: World, name: str) -> Object:
    found = world.api.get("Deployment", f"{name}-engine", namespace=world.namespace)
    assert found is not None, f"{name} has no Deployment"
    return found


def image(world: World, name: str) -> str:
    containers = deployment(world, name)["spec"]["template"]["spec"]["containers"]
    return next(str(one["image"]) for one in containers if one["name"] == "sidecar")


def upgraded(world: World) -> set[str]:
    """Return the servers whose engines are restarted, or have been."""
    return {name for name in SERVERS if image(world, name) == NEW}


def outdated(world: World) -> set[str]:
    """Return the servers that say that they wait."""
    return {name for name in SERVERS if world.condition("ModelServer", name, "Outdated") is not None}


def wait_split(world: World, count: int) -> None:
    """Wait until so many servers have the new image, and the others say that they wait."""

    def split() -> bool:
        new, old = upgraded(world), outdated(world)
        assert (len(new), old) == (count, set(SERVERS) - new), f"new: {new}, waiting: {old}"
        return True

    eventually(split, what=f"{count} with the new image", seconds=60)


def test_servers_are_restarted_one_after_another_each_when_the_one_before_is_ready(fleet: World, start: Start) -> None:
    start(NEW)
    done: set[str] = set()
    for count in (1, 2, 3):
        wait_split(fleet, count)
        [turn] = upgraded(fleet) - done
        ready = [fleet.condition("ModelServer", name, "Ready") for name in outdated(fleet)]
        assert all(one and one["status"] == "True" for one in ready)
        fleet.start_engines(turn)
        done.add(turn)
    eventually(
        lambda: (
            not any("whetstone.dev/upgrade" in deployment(fleet, name)["metadata"]["annotations"] for name in SERVERS)
        ),
        what="nobody's turn any more",
    )


def test_server_that_waits_is_scaled_and_takes_the_upgrade_with_a_change_of_its_own(fleet: World, start: Start) -> None:
    start(NEW)
    wait_split(fleet, 1)
    scaled, changed = sorted(outdated(fleet))
    fleet.api.merge("ModelServer", scaled, {"spec": {"replicas": 2}}, namespace=fleet.namespace)
    eventually(lambda: deployment(fleet, scaled)["spec"]["replicas"] == 2, what="another replica")
    assert image(fleet, scaled) == OLD
    engine = {"spec": {"engine": {"maxModelLength": 640}}}
    fleet.api.merge("ModelServer", changed, engine, namespace=fleet.namespace)
    eventually(lambda: image(fleet, changed) == NEW, what="the change with the new image")
    # Its turn never comes, and whoever takes it away lets the next one have it.
    [stuck] = upgraded(fleet) - {changed}
    fleet.api.delete("ModelServer", stuck, namespace=fleet.namespace)
    eventually(lambda: image(fleet, scaled) == NEW, what="the next turn")


def test_who_waits_says_for_whom_and_a_new_operator_knows_whose_turn_it_is(fleet: World, start: Start) -> None:
    start(NEW)
    wait_split(fleet, 1)
    before = upgraded(fleet)
    for name in outdated(fleet):
        told = fleet.wait_reason("ModelServer", name, "UpgradeWaits", condition="Outdated")
        assert all(f"{fleet.namespace}/{turn}" in told["message"] for turn in before)
    again = start(NEW)
    eventually(lambda: again.metric("whetstone_reconcile_total", controller="modelservers") >= 3, what="a look at all")
    assert upgraded(fleet) == before


@pytest.mark.long
def test_with_none_at_a_time_engines_go_on_as_they_are(fleet: World, start: Start) -> None:
    start(NEW, at_a_time=0)
    wait_split(fleet, 0)
