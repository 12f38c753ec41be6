"""What the chart's PodMonitors select among pods as they are made."""

from typing import Any

import pytest
from support.charts import OPERATOR, rendered
from support.children import operators_template, templates_of, variables_of
from whetstone_operator.settings import Settings

VALUES: dict[str, Any] = {"images": {"registry": "registry.test"}, "monitoring": {"scrape": True}}


@pytest.fixture(scope="module")
def monitors() -> list[dict[str, Any]]:
    return [one for one in rendered(OPERATOR, VALUES) if one["kind"] == "PodMonitor"]


@pytest.fixture(scope="module")
def templates() -> dict[str, dict[str, Any]]:
    template = operators_template(VALUES)
    return {"operator": template, **templates_of(Settings.from_environment(variables_of(template["spec"])))}


def selected(monitor: dict[str, Any], templates: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    return {name: one for name, one in templates.items() if wanted <= one["metadata"]["labels"].items()}


def test_pods_with_series_are_selected_and_no_others(
    monitors: list[dict[str, Any]], templates: dict[str, dict[str, Any]]
) -> None:
    found = {monitor["metadata"]["name"]: set(selected(monitor, templates)) for monitor in monitors}

    assert found == {
        "whetstone-operator": {"operator"},
        "whetstone-engines": {"engine"},
        "whetstone-trainings": {"train", "train on several nodes"},
    }


def test_selected_pods_declare_the_ports_by_which_they_are_found(
    monitors: list[dict[str, Any]], templates: dict[str, dict[str, Any]]
) -> None:
    """Prometheus makes a target of a declared port only."""
    for monitor in monitors:
        for endpoint in monitor["spec"]["podMetricsEndpoints"]:
            for name, template in selected(monitor, templates).items():
                containers = [*template["spec"].get("initContainers", []), *template["spec"]["containers"]]
                ports = [port["name"] for one in containers for port in one.get("ports", [])]
                assert ports.count(endpoint["port"]) == 1, name
