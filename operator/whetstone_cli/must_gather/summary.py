"""The page that is read first: how each object stands, and what to do. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from whetstone_api.remedies import REMEDIES
from whetstone_api.vocabulary import Reason

_BAD_IF_TRUE: Final = ("Failed", "Stalled")
_BAD_IF_FALSE: Final = ("Ready", "AdaptersLoaded", "AdapterEffective", "BaseParity", "Valid", "GatePassed", "Judged")


def summary(objects: Iterable[Mapping[str, Any]], *, versions: str, gaps: Sequence[str]) -> str:
    """Return the summary.

    Args:
        objects: Objects of our kinds.
        versions: Versions of client, cluster and operator, in lines.
        gaps: What could not be read.
    """
    parts = [versions.rstrip(), ""]
    for obj in objects:
        parts += [*_standing(obj), ""]
    parts.append(f"{len(gaps)} things could not be read" + (":" if gaps else ""))
    parts += [f"  {gap}" for gap in gaps]
    return "\n".join(parts) + "\n"


def _standing(obj: Mapping[str, Any]) -> Iterable[str]:
    metadata, status = obj["metadata"], obj.get("status") or {}
    yield f"{obj['kind']} {metadata['namespace']}/{metadata['name']}"
    conditions = status.get("conditions") or []
    if not conditions:
        yield "  no conditions: no operator has looked at it"
    if status.get("observedGeneration", metadata.get("generation")) != metadata.get("generation"):
        yield "  the operator has not looked at the last change of its spec yet"
    for one in conditions:
        yield f"  {one['type']}={one['status']} {one['reason']}: {one.get('message', '')}"
    for reason in dict.fromkeys(one["reason"] for one in conditions if _is_bad(one)):
        if reason in Reason:
            yield f"  what to do about {reason}: {REMEDIES[Reason(reason)].do}"


def _is_bad(condition: Mapping[str, Any]) -> bool:
    kind, status = condition["type"], condition["status"]
    return (kind in _BAD_IF_TRUE and status == "True") or (kind in _BAD_IF_FALSE and status == "False")
