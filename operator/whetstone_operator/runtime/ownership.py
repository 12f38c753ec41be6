"""Whose an object is that has the name of a child. Pure.

Users choose the names of our objects, and children are named after them: an object that somebody else made may have
such a name, and it must be neither changed nor deleted with ours.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from whetstone_api.vocabulary import Label

from whetstone_operator.resources.metadata import MANAGED_BY, owner_uids
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
    labels = stored["metadata"].get("labels") or {}
    if labels.get(Label.MANAGED_BY) == MANAGED_BY or owner_uids(stored) & owner_uids(wanted):
        return
    child = wanted["metadata"]
    owner = child["ownerReferences"][0]["kind"]
    raise NameTakenError(
        HTTPStatus.CONFLICT,
        f"{wanted['kind']} {child['name']} in namespace {child['namespace']} exists and is not of this {owner}: delete"
        f" or rename it, or give the {owner} another name",
    )
