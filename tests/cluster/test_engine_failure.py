"""An engine that cannot run: the server says why, in the engine's or the kubelet's words, and which field helps."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.loop import Seeded
from support.waiting import eventually
from whetstone_dev.demo import plan
from whetstone_dev.demo.watch import condition

pytestmark = [pytest.mark.cluster, pytest.mark.long]
FAIL_SECONDS = 150.0


@dataclass(frozen=True, kw_only=True)
class Case:
    """A server whose engine ends, and what its condition Ready must say.

    Args:
        name: Name of the object.
        reason: Reason of the condition.
        words: Parts of the message.
        engine: Fields of spec.engine.
        memory: Limit of the engine's memory.
    """

    name: str
    reason: str
    words: tuple[str, ...]
    engine: dict[str, Any] = field(default_factory=dict)
    memory: str = "4Gi"


CASES = (
    Case(
        name="no-image",
        reason="PodFailed",
        words=("ImagePull", "registry.whetstone.local:5000/whetstone/nothing:1"),
        engine={"image": "registry.whetstone.local:5000/whetstone/nothing:1"},
    ),
    Case(
        name="no-argument",
        reason="EngineFailed",
        words=("unrecognized arguments: --colour", "check spec.engine.extraArgs"),
        engine={"extraArgs": ["--colour=blue"]},
    ),
    Case(
        name="no-memory",
        reason="EngineFailed",
        words=("OOMKilled", "raise spec.resources.limits.memory"),
        memory="200Mi",
    ),
)


@pytest.fixture(scope="module", autouse=True)
def servers(seeded: Seeded) -> Iterator[None]:
    """All servers at once: each needs its time to end."""
    for case in CASES:
        spec = {
            "model": {"source": {"uri": f"pvc://models/{plan.MODEL}"}, "servedName": plan.MODEL},
            "engine": case.engine,
            "resources": {"requests": {"cpu": "100m"}, "limits": {"memory": case.memory}},
            "drain": {"seconds": 0},
        }
        seeded.apply("ModelServer", case.name, spec)
    yield
    for case in CASES:
        seeded.delete("ModelServer", case.name)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_engine_that_cannot_run_says_what_helps(seeded: Seeded, case: Case) -> None:
    def told() -> bool:
        ready = condition(seeded.get("ModelServer", case.name), "Ready")
        assert ready is not None
        assert (ready["status"], ready["reason"]) == ("False", case.reason), f"{ready}"
        missing = [word for word in case.words if word not in ready["message"]]
        assert not missing, f"{missing} not in {ready['message']}"
        assert len(ready["message"]) < 4096
        return True

    eventually(told, what=f"server {case.name} tells why", seconds=FAIL_SECONDS)
