"""Mutated objects at the real API server, and the operator on those that it takes: a sentence for each, no crash.

An object's number is its seed.
"""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from integration.api import Object, Refused
from integration.constraints.objects import VARIANTS
from integration.operator_process import OperatorProcess
from integration.world import CLAIMS, World
from support.mutation import mutated_value
from support.waiting import eventually

pytestmark = pytest.mark.integration
SHORT, LONG = 90, 2000
REFUSALS = frozenset({400, 413, 422})


def mutant(seed: int) -> Object:
    """Return an object that holds every field of its kind once, with a changed spec."""
    rng = random.Random(seed)
    obj = dict(rng.choice([one for variants in VARIANTS.values() for one in variants]))
    obj["metadata"] = {"name": f"o-{seed}"}
    obj.pop("status")
    while True:
        spec = mutated_value(rng, obj["spec"])
        try:
            json.dumps(spec, allow_nan=False, ensure_ascii=False).encode()
        except ValueError:
            # JSON has no form for it, so nobody can send it.
            continue
        return {**obj, "spec": spec}


def create(world: World, obj: Object) -> bool:
    """Create an object; whether the API server takes it."""
    try:
        world.api.create(obj, namespace=world.namespace)
    except Refused as error:
        if error.status not in REFUSALS:
            raise
        return False
    return True


@pytest.mark.parametrize("number", [SHORT, pytest.param(LONG, marks=pytest.mark.long)], ids=["short", "long"])
def test_mutated_objects_are_refused_or_told_about(
    world: World, operator: OperatorProcess, tmp_path: Path, number: int
) -> None:
    world.claims(*CLAIMS)
    taken = [obj for seed in range(number) if create(world, obj := mutant(seed))]
    assert 0 < len(taken) < number

    def told(obj: Object) -> Any:
        found = world.condition(obj["kind"], obj["metadata"]["name"], "Ready")
        assert found is not None, f"{obj['metadata']['name']} has no condition Ready"
        assert found["reason"] != "InternalError", f"{obj['metadata']['name']}: {found['message']}"
        return found

    for obj in taken:
        found = eventually(lambda obj=obj: told(obj), what=f"the operator tells about {obj['metadata']['name']}")
        assert "Traceback" not in found["message"]
    assert operator.ready()
    # That its log holds no traceback is what the operator's fixture asks at its end.
