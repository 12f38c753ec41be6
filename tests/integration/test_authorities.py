"""Authorities that the administrator decided on must be in a namespace before pods that mount them are made."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.operator_process import OperatorProcess
from integration.world import World
from support.waiting import eventually

AUTHORITIES = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "authorities"}, "data": {"other": ""}}


pytestmark = pytest.mark.integration


@pytest.fixture
def operator(operator_kubeconfig: Path, namespace: str, tmp_path: Path) -> Iterator[OperatorProcess]:
    """An operator whose chart names a bundle of authorities."""
    process = OperatorProcess(
        kubeconfig=operator_kubeconfig,
        namespace=namespace,
        log=tmp_path / "operator.log",
        environment={"WHETSTONE_CA_CONFIG_MAP": "authorities"},
    )
    process.start()
    yield process
    process.kill()


def test_objects_wait_for_the_authorities_of_their_namespace(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve()
    world.train()
    kinds = {"ModelServer": "server", "LoRATrainingJob": "train"}

    told = [world.wait_reason(kind, name, "ConfigMapNotFound")["message"] for kind, name in kinds.items()]
    assert all("caBundle of the operator's chart" in one and "create it" in one for one in told)

    world.api.create(AUTHORITIES, namespace=world.namespace)
    eventually(
        lambda: "has no key ca.crt" in world.wait_reason("ModelServer", "server", "ConfigMapNotFound")["message"],
        what="the key is missed",
    )
    world.api.merge("ConfigMap", "authorities", {"data": {"ca.crt": "PEM"}}, namespace=world.namespace)
    pod = world.wait_job("train", "prepare")["spec"]["template"]["spec"]
    assert "ca-bundle" in {volume["name"] for volume in pod["volumes"]}
    world.start_engines()
