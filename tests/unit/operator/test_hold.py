"""What holds a server for benchmarks, and what makes its engines others."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from whetstone_api.benchmark_target import MeasuredTarget
from whetstone_api.pod_state import DesiredAdapter
from whetstone_operator.controllers.alias_routes import AliasRoutes, wanted_adapters
from whetstone_operator.controllers.engine_identity import engine_identity, identity_change
from whetstone_operator.controllers.hold import HOLD_SECONDS, holds_of

START = datetime(2026, 1, 1, tzinfo=UTC)


def job(*, deadline: int | None = None, **fields: Any) -> dict[str, Any]:
    """Return the Job of a run that began at START."""
    annotations = {"whetstone.dev/measured-target": MeasuredTarget(served_name="a--1").model_dump_json(by_alias=True)}
    metadata = {
        "name": "run-run-1",
        "labels": {"whetstone.dev/benchmark-run": "run"},
        "annotations": annotations,
        "creationTimestamp": "2025-01-01T00:00:00Z",
        **fields.pop("metadata", {}),
    }
    spec = {**({"activeDeadlineSeconds": deadline} if deadline else {}), **fields.pop("spec", {})}
    return {"metadata": metadata, "spec": spec, "status": {"startTime": "2026-01-01T00:00:00Z", **fields}}


@pytest.mark.parametrize(("deadline", "seconds"), [(600, 600), (None, HOLD_SECONDS)])
def test_hold_is_bounded_in_time(deadline: int | None, seconds: int) -> None:
    late = START + timedelta(seconds=seconds)
    [hold] = holds_of([job(deadline=deadline)], now=late - timedelta(seconds=1))
    assert (hold.run, hold.served_name, hold.until, hold.shared) == ("run", "a--1", late, False)
    assert holds_of([job(deadline=deadline)], now=late) == []


@pytest.mark.parametrize(
    "idle",
    [
        job(conditions=[{"type": "Complete", "status": "True"}]),
        job(conditions=[{"type": "Failed", "status": "True"}]),
        job(spec={"suspend": True}),
        job(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
    ],
)
def test_job_that_is_not_at_work_holds_nothing(idle: dict[str, Any]) -> None:
    assert holds_of([idle], now=START) == []


def test_measured_version_stays_loaded_when_its_adapter_leaves_the_spec() -> None:
    held = [
        DesiredAdapter(
            name=name, served_name=f"{name}--1", digest=f"sha256:{name}", source="pvc://a/a", path="/a", required=True
        )
        for name in ("a", "b")
    ]
    kept = wanted_adapters([], held=held, routes=AliasRoutes(), measured={"a--1"})
    assert [(item.served_name, item.required) for item in kept] == [("a--1", False)]


def deployment(*, image: str = "engine:1", argument: str = "--seed=0", chat: str | None = None) -> dict[str, Any]:
    annotations = {} if chat is None else {"whetstone.dev/chat-template": chat}
    containers = [{"name": "engine", "image": image, "args": [argument]}, {"name": "sidecar", "image": image}]
    written = {"manager": "whetstone-operator", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {}}}
    status = {**written, "time": "2026-02-01T00:00:00Z", "subresource": "status"}
    return {
        "metadata": {"managedFields": [written, status]},
        "spec": {"template": {"metadata": {"annotations": annotations}, "spec": {"containers": containers}}},
    }


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"image": "engine:2"}, "image engine:1 -> engine:2"),
        ({"argument": "--seed=1"}, "settings sha256:"),
        ({"chat": "{{ messages }}"}, "chat template None -> sha256:"),
    ],
)
def test_other_engines_are_told_unless_they_came_after_the_run(other: dict[str, str], words: str) -> None:
    before, now = engine_identity(deployment()), deployment(**other)
    assert words in (identity_change(before, now, ended_at="2026-01-01T00:00:01Z") or "")
    assert words in (identity_change(before, now, ended_at=None) or "")
    assert identity_change(before, now, ended_at="2026-01-01T00:00:00Z") is None
    assert identity_change(before, now, ended_at="2025-12-31T00:00:00Z") is None
    assert identity_change(before, deployment(), ended_at=None) is None
