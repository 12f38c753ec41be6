"""Tells whether an object already is what an apply would make of it. Pure.

An apply that changes nothing costs the API server ten times what a read costs, and most reconciles change nothing.
"""

from collections.abc import Mapping
from typing import Any

from kubernetes.utils.quantity import parse_quantity
from whetstone_api.digests import canonical_digest
from whetstone_api.vocabulary import Annotation


def stamp(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object with an annotation that names all of its content.

    What is stored cannot tell whether it once held more that is no longer wanted; the annotation can.
    """
    digest = canonical_digest(wanted).removeprefix("sha256:")[:16]
    metadata = wanted["metadata"]
    annotations = {**(metadata.get("annotations") or {}), str(Annotation.APPLIED): digest}
    return {**wanted, "metadata": {**metadata, "annotations": annotations}}


def holds(stored: Any, wanted: Any) -> bool:
    """Return whether all that is wanted is stored. More may be: defaults, other writers' fields, a status.

    Args:
        stored: As the API server returned it.
        wanted: As it was, or would be, applied.
    """
    if stored == wanted:
        return True
    if isinstance(wanted, dict):
        if stored is None:
            return not wanted
        return isinstance(stored, dict) and all(holds(stored.get(name), value) for name, value in wanted.items())
    if isinstance(wanted, list):
        items = stored if isinstance(stored, list) else []
        return len(items) == len(wanted) and all(map(holds, items, wanted))
    if stored is None:
        # The API server leaves out what is empty.
        return not wanted
    return wanted is None or _same_quantity(stored, wanted)


def _same_quantity(stored: Any, wanted: Any) -> bool:
    """Return whether both are amounts and equal: `1000m` is stored as `1`."""
    try:
        return bool(parse_quantity(str(stored)) == parse_quantity(str(wanted)))
    except ValueError:
        return False
