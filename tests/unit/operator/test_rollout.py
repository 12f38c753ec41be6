"""What a rollout changes, and what helps an engine that ends again and again."""

from typing import Any

import pytest
from whetstone_operator.controllers.engine_failure import advise
from whetstone_operator.controllers.rollout import restart_causes


def containers(**engine: Any) -> dict[str, Any]:
    fields = {"image": "r/engine:1", "args": ["/model", "--max-loras=4"], "env": [{"name": "A", "value": "1"}]}
    return {"spec": {"containers": [{"name": "engine", **fields, **engine}, {"name": "sidecar", "image": "r/s:1"}]}}


def test_pods_as_wanted_restart_for_nothing() -> None:
    assert restart_causes([containers(), containers()], containers()) == []


def test_requests_that_follow_from_limits_are_no_restart() -> None:
    limits = {"nvidia.com/gpu": "1", "memory": "8Gi"}
    pod = containers(resources={"limits": limits, "requests": {"cpu": "1", **limits}})
    assert restart_causes([pod], containers(resources={"limits": limits, "requests": {"cpu": "1"}})) == []


@pytest.mark.parametrize(
    ("new", "cause"),
    [
        ({"image": "r/engine:2"}, "engine image r/engine:1 -> r/engine:2"),
        ({"args": ["/model", "--max-loras=8"]}, "--max-loras=4 -> --max-loras=8"),
        ({"args": ["/other", "--max-loras=4"]}, "/model -> /other"),
        ({"args": ["/model", "--max-loras=4", "--enforce-eager"]}, "none -> --enforce-eager"),
        ({"args": ["/model"]}, "--max-loras=4 -> none"),
        ({"env": [{"name": "A", "value": "2"}]}, "engine environment A"),
        ({"resources": {"limits": {"memory": "8Gi"}}}, "engine resources"),
    ],
)
def test_cause_of_a_restart_is_named(new: dict[str, Any], cause: str) -> None:
    assert restart_causes([containers(), containers(**new)], containers(**new)) == [cause]


@pytest.mark.parametrize(
    ("cause", "log", "field"),
    [
        ("OOMKilled", "", "spec.resources.limits.memory"),
        (
            "Error",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
            "spec.adapterCapacity.maxRank",
        ),
        ("Error", "ValueError: No available memory for the cache blocks.", "spec.engine.maxModelLength"),
        ("Error", "vllm serve: error: unrecognized arguments: --colour", "spec.engine.extraArgs"),
    ],
)
def test_engine_that_ends_gets_the_field_to_change(cause: str, log: str, field: str) -> None:
    assert field in advise(container="engine", cause=cause, log=log)


def test_unknown_end_gets_no_made_up_advice() -> None:
    assert advise(container="engine", cause="Error", log="KeyError: 'x'") == ""


def test_fields_of_the_engine_are_no_advice_for_other_containers() -> None:
    assert advise(container="sidecar", cause="OOMKilled", log="") == ""
