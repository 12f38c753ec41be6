"""Whose an object is that has the name of a child. Pure.

Users choose the names of our objects, and children are named after them: an object that somebody else made may have
such a name, and it must be neither changed nor deleted with ours.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from whetstone_api.vocabulary import Label

from whetstone_operator.transport import KubeError


class NameTakenError(KubeError):
    """An object of somebody else has a child's name."""


def require_own(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse to go on with an object that is not of ours: it has neither our label nor our object as its owner.

    Args:
        stored: The object as it is.
        wanted: The child as it would be applied.

    Raises:
        NameTakenError: It is somebody else's.
    """
    there, ours = stored["metadata"], wanted["metadata"]
    mark = (ours.get("labels") or {}).get(Label.MANAGED_BY)
    if mark is not None and (there.get("labels") or {}).get(Label.MANAGED_BY) == mark:
        return
    owners = ours.get("ownerReferences") or []
    if {owner["uid"] for owner in owners} & {owner["uid"] for owner in there.get("ownerReferences") or []}:
        return
    owner = owners[0]["kind"] if owners else "object"
    raise NameTakenError(
        HTTPStatus.CONFLICT,
        f"{wanted['kind']} {ours['name']} in namespace {ours['namespace']} exists and is not of this {owner}: delete or"
        f" rename it, or give the {owner} another name",
    )
