"""No path of a spec leads out of its volume: the API server refuses each one that tries."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from integration.api import Api, Object, Refused
from integration.constraints.objects import VARIANTS

pytestmark = pytest.mark.integration
IN_VOLUMES = ("pvc://", "file://")
PATHS = {"file", "path", "subPath"}
NO_PATHS = {"podTemplate", "discipline"}
"""Kubernetes' own form, which the pod's judgement deals with; and names of arguments that hold paths of a sandbox."""


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where a value holds paths of volumes."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        here = (*path, key)
        if isinstance(inner, str) and (inner.startswith(IN_VOLUMES) or key in PATHS):
            yield here
        else:
            yield from places(inner, here)


def leading_out(obj: Object, place: tuple[Any, ...]) -> Object:
    """Return an object one of whose paths leads out of its volume."""
    changed = copy.deepcopy(obj)
    parent = changed
    for key in place[:-1]:
        parent = parent[key]
    before = parent[place[-1]]
    parent[place[-1]] = f"{before}/../../other" if before.startswith(IN_VOLUMES) else "../../other"
    return changed


def tries() -> Iterator[Any]:
    seen = set()
    for kind, variants in VARIANTS.items():
        for obj in variants:
            for place in places(obj["spec"], ("spec",)):
                field = ".".join(str(part) for part in place if not isinstance(part, int))
                if (kind, field) not in seen and not NO_PATHS & set(place):
                    seen.add((kind, field))
                    yield pytest.param(leading_out(obj, place), place[-1], id=f"{kind}-{field}")


@pytest.mark.parametrize(("obj", "field"), tries())
def test_path_that_leads_out_of_its_volume_is_refused(api: Api, namespace: str, obj: Object, field: str) -> None:
    with pytest.raises(Refused, match=field) as refused:
        api.create({name: value for name, value in obj.items() if name != "status"}, namespace=namespace, dry_run=True)
    assert refused.value.status == 422
