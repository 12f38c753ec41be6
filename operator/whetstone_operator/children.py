"""The children of our objects: what of them is followed, and whom their changes wake."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from whetstone_api.vocabulary import Label

from whetstone_operator.kinds import (
    BENCHMARK_RUN,
    CONFIG_MAP,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    JOB,
    MODEL_SERVER,
    POD,
    SERVICE,
    TRAINING_JOB,
    Key,
    Kind,
)
from whetstone_operator.resources.metadata import MANAGED_BY
from whetstone_operator.runtime.informer import Changed, Watched
from whetstone_operator.runtime.news import News

_OURS: Final = {str(Label.MANAGED_BY): MANAGED_BY}
CHILDREN: Final = (
    *(Watched(kind=kind, labels=_OURS) for kind in (DEPLOYMENT, DISRUPTION_BUDGET, JOB, SERVICE, CONFIG_MAP)),
    Watched(kind=POD, labels={str(Label.MODEL_SERVER): None}),
)
"""Secrets are not watched: that would need the right to list them all. Pods of Jobs are told of by their Job."""


def _deployment_status(status: dict[str, Any]) -> Any:
    """Return all but the conditions; of these only whether pods are refused."""
    failing = [one["status"] for one in status.get("conditions") or [] if one["type"] == "ReplicaFailure"]
    return {**status, "conditions": failing}


def _nothing(_: dict[str, Any]) -> Any:
    return None


_READ_STATUS = {DISRUPTION_BUDGET.plural: _nothing, SERVICE.plural: _nothing, DEPLOYMENT.plural: _deployment_status}
_OWNERS = {
    Label.MODEL_SERVER: MODEL_SERVER,
    Label.TRAINING_JOB: TRAINING_JOB,
    Label.BENCHMARK_RUN: BENCHMARK_RUN,
}


def owner_of(labels: Mapping[str, str], namespace: str) -> Key | None:
    """Return the key of the object that a child's labels name."""
    for label, kind in _OWNERS.items():
        if labels.get(label):
            return Key(kind.plural, namespace, labels[label])
    return None


def wake_owners(mark: Callable[[Key], None]) -> Changed:
    """Return what hears of changes of children, and makes their owners due where a change tells something new.

    Args:
        mark: Makes a key due.
    """
    news = News(_READ_STATUS)

    def changed(kind: Kind, event: Mapping[str, Any]) -> None:
        metadata = event["object"]["metadata"]
        labels = metadata.get("labels") or {}
        owner = owner_of(labels, metadata["namespace"])
        if owner is not None and news.is_news(kind.plural, event):
            mark(owner)
            if held := labels.get(Label.HOLDS):
                mark(Key(MODEL_SERVER.plural, owner.namespace, held))

    return changed
