"""The children of our objects: what of them is followed, and whom their changes wake."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from whetstone_api.vocabulary import Label

from whetstone_operator.controllers.job_outcome import pod_problem
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
from whetstone_operator.resources.distributed import JOB_NAME_LABEL
from whetstone_operator.resources.metadata import MANAGED_BY
from whetstone_operator.runtime.informer import Changed, Watched
from whetstone_operator.runtime.news import News

_OURS: Final = {str(Label.MANAGED_BY): MANAGED_BY}
CHILDREN: Final = (
    *(Watched(kind=kind, labels=_OURS) for kind in (DEPLOYMENT, DISRUPTION_BUDGET, JOB, SERVICE, CONFIG_MAP)),
    Watched(kind=POD, labels=_OURS, fields="status.phase!=Succeeded,status.phase!=Failed"),
)
"""Secrets are not watched: that would need the right to list them all. Nor are pods that have ended: they are most of
the pods, and nothing of them is read but how a Job ended, once."""


def _all_but_status(obj: dict[str, Any]) -> Any:
    return {**obj, "status": None}


def _deployment(obj: dict[str, Any]) -> Any:
    """Return all but the conditions; of these only whether pods are refused."""
    status = obj.get("status") or {}
    failing = [one["status"] for one in status.get("conditions") or [] if one["type"] == "ReplicaFailure"]
    return {**obj, "status": {**status, "conditions": failing}}


def _pod(obj: dict[str, Any]) -> Any:
    """Return all of an engine pod; of a Job's only what keeps it from running: the Job tells the rest."""
    return pod_problem([obj]) if JOB_NAME_LABEL in obj["metadata"]["labels"] else obj


_READ = {
    DISRUPTION_BUDGET.plural: _all_but_status,
    SERVICE.plural: _all_but_status,
    DEPLOYMENT.plural: _deployment,
    POD.plural: _pod,
}
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
    news = News(_READ)

    def changed(kind: Kind, event: Mapping[str, Any]) -> None:
        metadata = event["object"]["metadata"]
        labels = metadata.get("labels") or {}
        owner = owner_of(labels, metadata["namespace"])
        if owner is not None and news.is_news(kind.plural, event):
            mark(owner)
            if held := labels.get(Label.HOLDS):
                mark(Key(MODEL_SERVER.plural, owner.namespace, held))

    return changed
