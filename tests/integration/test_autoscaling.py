"""Who scales a server and who reaches its pods: the examples and the chart's policy, on a real API server."""

from typing import Any

import pytest
import yaml
from integration.api import Api, Object
from integration.operator_process import SYSTEM_NAMESPACE, OperatorProcess
from integration.world import SERVER_SPEC, World
from support.waiting import eventually
from whetstone_api.modelserver import ModelServer
from whetstone_api.pod_state import ENGINE_PORT, SIDECAR_PORT
from whetstone_dev.commands import run
from whetstone_dev.gobuild import HELM, build
from whetstone_dev.places import CHECKOUT
from whetstone_operator.resources.modelserver import build_template
from whetstone_operator.settings import Settings

pytestmark = pytest.mark.integration
KIND = "ModelServer"
NAME = "smollm2"
CHART = CHECKOUT / "charts" / "whetstone"


def example() -> Object:
    """Return the HorizontalPodAutoscaler of the examples."""
    found: Object = yaml.safe_load((CHECKOUT / "examples" / "autoscaling" / "hpa.yaml").read_text())
    return found


def replicas(world: World) -> tuple[int, int]:
    """Return the wanted replicas of server and Deployment."""
    server, deployment = world.get(KIND, NAME), world.get("Deployment", f"{NAME}-engine")
    return server["spec"]["replicas"], deployment["spec"]["replicas"]


def test_the_example_finds_its_server_and_brings_it_into_its_bounds(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve(NAME, replicas=6)
    eventually(lambda: len(world.engine_pods(NAME)) == 6, what="six pods")
    most = example()["spec"]["maxReplicas"]
    world.api.create(example(), namespace=world.namespace)
    eventually(lambda: replicas(world) == (most, most), what="as many replicas as the example allows at most")
    found = world.get("HorizontalPodAutoscaler", NAME)["status"]["conditions"]
    assert {"AbleToScale": "True"}.items() <= {one["type"]: one["status"] for one in found}.items()
    operator.kill()
    operator.start()
    eventually(
        lambda: operator.metric("whetstone_reconcile_total", controller="modelservers") > 1, what="a look at the server"
    )
    assert replicas(world) == (most, most)


def rendered(*arguments: Any) -> list[Object]:
    """Return the chart's objects."""
    command = [build(HELM), "template", "w", CHART, "--namespace", SYSTEM_NAMESPACE, "--kube-version", "1.34.0"]
    text = run([*command, "--set", "images.registry=r.test", *arguments])
    return [one for one in yaml.safe_load_all(text) if one]


def policies(objects: list[Object]) -> list[Object]:
    return [one for one in objects if one["kind"] == "NetworkPolicy"]


def test_without_being_asked_the_chart_makes_no_policy() -> None:
    assert policies(rendered("--set", "servedNamespaces={default}")) == []


def test_policy_opens_the_guard_to_all_and_the_sidecar_to_the_operator(api: Api, namespace: str) -> None:
    peers = 'networkPolicy.metricsFrom=[{"podSelector": {"matchLabels": {"app": "prometheus"}}}]'
    switched = ("--set", "networkPolicy.enabled=true", "--set", f"servedNamespaces={{{namespace}}}")
    objects = rendered(*switched, "--set-json", peers)
    [policy] = [one for one in policies(objects) if one["metadata"]["name"] == "whetstone-engines"]
    assert policy["metadata"]["namespace"] == namespace
    api.raw("POST", f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies", policy)
    deployment = next(one for one in objects if one["kind"] == "Deployment")
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    settings = Settings.from_environment({one["name"]: one.get("value", "") for one in container["env"]})
    server = ModelServer.model_validate({"metadata": {"name": NAME, "namespace": namespace}, "spec": SERVER_SPEC})
    pod = build_template(server, settings)
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    opened = {one["ports"][0]["port"]: one.get("from") for one in policy["spec"]["ingress"]}
    own, metrics = opened[SIDECAR_PORT]
    assert opened == {ENGINE_PORT: None, SIDECAR_PORT: [own, metrics]}
    assert metrics == {"podSelector": {"matchLabels": {"app": "prometheus"}}}
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert own["podSelector"]["matchLabels"].items() <= labels.items()
    assert own["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": SYSTEM_NAMESPACE}
