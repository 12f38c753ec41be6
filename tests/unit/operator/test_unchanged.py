"""An apply is left out only where it would change nothing."""

from typing import Any

import pytest
from unit.operator.objects import SETTINGS, model_server
from whetstone_operator.resources.modelserver import build_deployment, build_service
from whetstone_operator.runtime.unchanged import holds, stamp


def stored(wanted: dict[str, Any]) -> dict[str, Any]:
    """Return an object as the API server gives it back: defaults and a status are added."""
    spec = {**wanted["spec"], "defaulted": True}
    return {**wanted, "metadata": {**wanted["metadata"], "resourceVersion": "7"}, "spec": spec, "status": {"x": 1}}


def test_what_was_applied_is_not_applied_again() -> None:
    for build in (build_service, lambda server: build_deployment(server, SETTINGS)):
        wanted = stamp(build(model_server()))
        assert holds(stored(wanted), wanted)


def test_another_wish_is_applied() -> None:
    before, after = (stamp(build_deployment(model_server(replicas=number), SETTINGS)) for number in (1, 2))
    assert not holds(stored(before), after)


def test_a_wish_that_only_asks_for_less_is_applied() -> None:
    whole = build_deployment(model_server(replicas=2), SETTINGS)
    less = {**whole, "spec": {name: value for name, value in whole["spec"].items() if name != "replicas"}}
    assert not holds(stored(stamp(whole)), stamp(less))


def test_what_somebody_else_changed_is_applied_again() -> None:
    wanted = stamp(build_service(model_server()))
    changed = stored(wanted)
    changed["spec"]["selector"] = {"app": "other"}
    assert not holds(changed, wanted)


@pytest.mark.parametrize(
    ("kept", "asked"),
    [
        ({"a": 1, "b": 2}, {"a": 1}),
        ({"cpu": "1"}, {"cpu": "1000m"}),
        ({}, {"env": [], "note": "", "emptyDir": {}, "absent": None}),
        ({"items": [{"name": "x", "more": 1}]}, {"items": [{"name": "x"}]}),
        ({"replicas": 3}, {"replicas": None}),
    ],
)
def test_defaults_and_equal_spellings_are_no_difference(kept: Any, asked: Any) -> None:
    assert holds(kept, asked)


@pytest.mark.parametrize(
    ("kept", "asked"),
    [
        ({"a": 1}, {"a": 2}),
        ({}, {"a": 1}),
        ({"cpu": "1"}, {"cpu": "100m"}),
        ({"items": [{"name": "x"}]}, {"items": []}),
        ({"items": [{"name": "x"}]}, {"items": [{"name": "y"}]}),
        ({"items": "x"}, {"items": ["x"]}),
        ({"a": "text"}, {"a": {"b": 1}}),
    ],
)
def test_other_values_are_a_difference(kept: Any, asked: Any) -> None:
    assert not holds(kept, asked)
