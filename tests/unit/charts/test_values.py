"""Every value of the charts is documented, in the closed schema, and used by a template."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator
from support.charts import CHARTS, OPERATOR, changed, rendered
from whetstone_dev.chart_readme import accepted, page, values_of
from whetstone_dev.commands import DevError

ALL_ON: Mapping[str, Any] = yaml.safe_load((OPERATOR / "ci" / "lint-values.yaml").read_text())
"""Values with which every optional part is rendered."""
OTHER: Mapping[str, Any] = {
    "images.registry": "other.example.com",
    "images.tag": "other",
    "images.operator": "other.example.com/operator:1",
    "images.server": "other.example.com/server:1",
    "images.trainer": "other.example.com/trainer:1",
    "images.benchmark": "other.example.com/benchmark:1",
    "images.unsloth": "other.example.com/unsloth:1",
    "images.engine": "other.example.com/engine:1",
    "images.pullPolicy": "Always",
    "images.pullSecrets": ["other"],
    "servedNamespaces": ["other"],
    "watchNamespaces": ["other"],
    "networkPolicy.enabled": False,
    "networkPolicy.metricsFrom": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
    "networkPolicy.trialsExcept": ["172.16.0.0/12"],
    "prices.currency": "USD",
    "prices.devices": [{"resource": "other", "perHour": "1"}],
    "monitoring.scrape": False,
    "monitoring.alerts": False,
    "monitoring.dashboards": False,
    "monitoring.labels": {"other": "one"},
    "proxy.http": "http://other:3128",
    "proxy.https": "http://other:3128",
    "proxy.except": ["other"],
    "caBundle.configMap": "other",
    "caBundle.key": "other.crt",
    "operator.replicas": 3,
    "operator.hubEndpoint": "https://other.example.com",
    "operator.workers": 5,
    "operator.resyncSeconds": 77,
    "operator.engineUpgrades": 7,
    "operator.logLevel": "DEBUG",
    "operator.resources": {"limits": {"memory": "1Gi"}},
    "operator.nodeSelector": {"other": "one"},
    "operator.tolerations": [{"key": "other", "operator": "Exists"}],
    "operator.affinity": {"podAntiAffinity": {}},
    "operator.priorityClassName": "other",
    "operator.podAnnotations": {"other": "one"},
    "operator.podLabels": {"other": "one"},
}
"""For each value, another one than it has by default and in `ALL_ON`."""
OPEN = {
    "global": "Helm hands a parent chart's values for all of its charts down here",
    "operator.affinity.nodeAffinity": "Kubernetes' own form; the API server checks it",
    "operator.affinity.podAffinity": "Kubernetes' own form; the API server checks it",
    "operator.affinity.podAntiAffinity": "Kubernetes' own form; the API server checks it",
}
"""Maps that take any name, and why."""


def schema_of(chart: Path) -> dict[str, Any]:
    """Return a chart's schema."""
    schema: dict[str, Any] = json.loads((chart / "values.schema.json").read_text())
    return schema


def maps_of(schema: Mapping[str, Any], part: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every map of a schema with its place."""
    if reference := part.get("$ref"):
        yield from maps_of(schema, schema["definitions"][reference.rpartition("/")[2]], path)
    if part.get("type") == "object":
        yield path, part
    for name, inner in part.get("properties", {}).items():
        yield from maps_of(schema, inner, f"{path}.{name}".removeprefix("."))
    if "items" in part:
        yield from maps_of(schema, part["items"], f"{path}[]")


def test_a_change_of_any_value_changes_what_is_rendered() -> None:
    known = {value.path for value in values_of((OPERATOR / "values.yaml").read_text())}
    before = rendered(OPERATOR, ALL_ON)

    unused = {path for path in known if rendered(OPERATOR, changed(ALL_ON, path, OTHER[path])) == before}

    assert not unused
    assert set(OTHER) == known


@pytest.mark.parametrize("path", sorted(OTHER))
def test_a_value_of_a_wrong_type_is_refused(path: str) -> None:
    schema = schema_of(OPERATOR)
    wrong = 7 if isinstance(OTHER[path], str) else "seven"

    assert Draft7Validator(schema).is_valid(changed(ALL_ON, path, OTHER[path]))
    assert not Draft7Validator(schema).is_valid(changed(ALL_ON, path, wrong))


@pytest.mark.parametrize("chart", [file.parent for file in sorted(CHARTS.glob("*/Chart.yaml"))], ids=lambda c: c.name)
def test_the_schema_takes_no_name_that_it_does_not_know(chart: Path) -> None:
    schema = schema_of(chart)
    maps = list(maps_of(schema, schema))

    # A map of words, as labels are, takes any name; what stands there has a type.
    free = {path for path, part in maps if part.get("additionalProperties", True) is True}

    assert free <= set(OPEN)
    assert "" in {path for path, _ in maps}


def test_helm_refuses_a_name_that_the_schema_does_not_know() -> None:
    with pytest.raises(DevError, match="additional properties 'wrokers' not allowed"):
        rendered(OPERATOR, changed(ALL_ON, "operator.wrokers", 5))


def test_the_readme_tells_default_type_and_comment_of_a_value() -> None:
    row = "| `operator.workers` | integer, 1 to 256 | `16` | Reconciles at a time. |"

    assert row in page(OPERATOR).splitlines()


def test_a_value_without_a_comment_is_an_error() -> None:
    with pytest.raises(DevError, match=r"group\.second has no comment"):
        values_of("# A group.\ngroup:\n  # What it does.\n  first: 1\n\n  second: 2\n")


def test_a_value_that_the_schema_lacks_is_an_error() -> None:
    with pytest.raises(DevError, match=r"does not know group\.first"):
        accepted({"properties": {"group": {"type": "object"}}}, "group.first")


def test_a_map_whose_values_have_no_comments_is_one_value() -> None:
    (value,) = values_of("# Requests.\nresources:\n  requests:\n    cpu: 1\n")

    assert (value.path, value.default, value.comment) == ("resources", {"requests": {"cpu": 1}}, "Requests.")
