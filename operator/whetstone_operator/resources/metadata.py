"""Names, labels and owner references of child objects."""

from collections.abc import Mapping
from typing import Any

from whetstone_api.schema import Resource
from whetstone_api.vocabulary import API_VERSION, Label

MANAGED_BY = "whetstone"
"""Value of the label by which the operator's watches select children."""
_OWNER_LABEL = {
    "ModelServer": Label.MODEL_SERVER,
    "LoRATrainingJob": Label.TRAINING_JOB,
    "BenchmarkRun": Label.BENCHMARK_RUN,
}


def owner_label(kind_name: str) -> Label:
    """Return the label that names an object of that kind on its children and pods."""
    return _OWNER_LABEL[kind_name]


def selector_labels(owner: Resource) -> dict[str, str]:
    """Return the label that tells an object's children from all others."""
    return {str(owner_label(owner.kind_name)): owner.metadata.name}


def child_labels(owner: Resource, *, component: str) -> dict[str, str]:
    """Return the labels of a child.

    Args:
        owner: The object that it belongs to.
        component: Its part: `engine`, `trainer`, `benchmark`.
    """
    return {
        str(Label.NAME): MANAGED_BY,
        str(Label.INSTANCE): owner.metadata.name,
        str(Label.COMPONENT): component,
        str(Label.PART_OF): MANAGED_BY,
        str(Label.MANAGED_BY): MANAGED_BY,
        **selector_labels(owner),
    }


def owner_reference(owner: Resource) -> dict[str, Any]:
    """Return the reference by which Kubernetes deletes a child with its owner."""
    return {
        "apiVersion": API_VERSION,
        "kind": owner.kind_name,
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def owner_uids(obj: Mapping[str, Any]) -> set[str]:
    """Return the uids of the objects that a stored object, or a child as it would be, names as its owners."""
    return {owner["uid"] for owner in obj["metadata"].get("ownerReferences") or []}


def child_metadata(
    owner: Resource,
    *,
    name: str,
    component: str,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Return the metadata of a child of `owner`.

    Args:
        owner: The object that it belongs to.
        name: Name of the child.
        component: Its part, for the label.
        labels: Further labels.
        annotations: Annotations.
    """
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": owner.metadata.namespace,
        "labels": {**child_labels(owner, component=component), **(labels or {})},
        "ownerReferences": [owner_reference(owner)],
    }
    if annotations:
        metadata["annotations"] = annotations
    return metadata
