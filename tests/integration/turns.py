"""What pods of a queued run ask the operator before they measure their server."""

import json
from typing import Any

from integration.operator_process import OperatorProcess
from integration.world import World
from support.waiting import eventually


def turn(world: World, operator: OperatorProcess, name: str, job: str) -> dict[str, Any]:
    """What the operator answers a pod of a run that asks for its turn."""
    config = json.loads(world.get("ConfigMap", f"{name}-config")["data"]["config.json"])
    place = f"v1/turns/benchmarkruns/{world.namespace}/{name}"
    assert config["turnUrl"].endswith(f"/{place}")
    pod = eventually(lambda: world.pods(world.get("Job", job)), what="a pod")[0]
    status, text = operator.post(place, token=world.pod_token(pod), body={})
    assert status == 200, text
    return dict(json.loads(text))


def wait_turn(world: World, operator: OperatorProcess, name: str, job: str) -> None:
    """Wait until a pod of a run may measure its server."""
    eventually(lambda: turn(world, operator, name, job)["granted"], what=f"the turn of {name}")
