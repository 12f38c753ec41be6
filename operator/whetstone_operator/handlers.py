"""kopf's part: watch our kinds and their children, and mark keys dirty. Nothing here can fail or block.

All state that kopf could keep on objects is off: no finalizers, no annotations, no status. What must happen is
decided by the reconcilers from the objects as they are.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import kopf
from whetstone_api.vocabulary import GROUP, VERSION, Label

from whetstone_operator.kinds import (
    BENCHMARK_RUN,
    CONFIG_MAP,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    JOB,
    MODEL_SERVER,
    OUR_KINDS,
    POD,
    SERVICE,
    TRAINING_JOB,
    Key,
)
from whetstone_operator.resources.metadata import MANAGED_BY
from whetstone_operator.runtime.news import News
from whetstone_operator.runtime.references import References

Mark = Callable[[Key], None]
CHILD_KINDS = (DEPLOYMENT, DISRUPTION_BUDGET, JOB, SERVICE, CONFIG_MAP)
"""Children whose changes wake their owner. Secrets are not watched: that would need the right to list them all."""


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


class NoDiffs(kopf.DiffBaseStorage):
    """Keeps kopf from copying and comparing every object that it hears of: no handler of ours asks for differences."""

    def build(self, *, body: kopf.Body, extra_fields: Iterable[Any] | None = None) -> kopf.BodyEssence:  # noqa: ARG002
        """Return nothing to compare."""
        return kopf.BodyEssence({})

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:  # noqa: ARG002
        """Return that nothing is stored."""
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Store nothing."""


def owner_of(labels: Mapping[str, str], namespace: str) -> Key | None:
    """Return the key of the object that a child's labels name."""
    for label, kind in _OWNERS.items():
        if labels.get(label):
            return Key(kind.plural, namespace, labels[label])
    return None


def build_registry(mark: Mark, references: References) -> kopf.OperatorRegistry:
    """Return the handlers.

    Args:
        mark: Makes a key due.
        references: Which other objects a change wakes.
    """
    registry = kopf.OperatorRegistry()
    news = News(_READ_STATUS)

    def login(**kwargs: Any) -> Any:
        return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)

    async def object_changed(body: kopf.Body, resource: Any, **_: Any) -> None:
        key = Key(resource.plural, str(body.metadata.namespace), str(body.metadata.name))
        mark(key)
        for dependent in references.dependents(key):
            mark(dependent)

    async def child_changed(body: kopf.Body, resource: Any, event: Any, **_: Any) -> None:
        owner = owner_of(body.metadata.labels, str(body.metadata.namespace))
        if owner is not None and news.is_news(resource.plural, event):
            mark(owner)
            if held := body.metadata.labels.get(Label.HOLDS):
                mark(Key(MODEL_SERVER.plural, owner.namespace, str(held)))

    kopf.on.login(registry=registry)(login)
    for kind in OUR_KINDS:
        kopf.on.event(GROUP, VERSION, kind.plural, registry=registry)(object_changed)
    for kind in CHILD_KINDS:
        group, _, version = kind.api_version.rpartition("/")
        selector = (group, version, kind.plural) if group else (version, kind.plural)
        labels = {str(Label.MANAGED_BY): MANAGED_BY}
        kopf.on.event(*selector, registry=registry, labels=labels)(child_changed)
    kopf.on.event("v1", POD.plural, registry=registry, labels={str(Label.MODEL_SERVER): kopf.PRESENT})(child_changed)
    return registry


def kopf_settings() -> kopf.OperatorSettings:
    """Return kopf's settings: explicit resources, bounded streams, nothing written on objects."""
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 310
    settings.watching.connect_timeout = 10
    settings.networking.request_timeout = 30
    settings.process.ultimate_exiting_timeout = 25
    settings.persistence.diffbase_storage = NoDiffs()
    settings.persistence.finalizer = f"{GROUP}/unused"
    for kind in CHILD_KINDS:
        group, _, version = kind.api_version.rpartition("/")
        selector = (group, version, kind.plural) if group else (version, kind.plural)
        settings.watching.label_selectors[selector] = f"{Label.MANAGED_BY}={MANAGED_BY}"
    # Pods of Jobs are told of by their Job.
    settings.watching.label_selectors[("v1", POD.plural)] = str(Label.MODEL_SERVER)
    return settings
