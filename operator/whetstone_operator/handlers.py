"""kopf's part: watch our kinds, and mark keys dirty. Nothing here can fail or block.

All state that kopf could keep on objects is off: no finalizers, no annotations, no status. What must happen is
decided by the reconcilers from the objects as they are.
"""

from collections.abc import Callable, Iterable
from typing import Any

import kopf
from whetstone_api.vocabulary import GROUP, VERSION

from whetstone_operator.kinds import OUR_KINDS, Key, kind_of_key
from whetstone_operator.runtime.news import DELETED
from whetstone_operator.runtime.object_store import ObjectStore
from whetstone_operator.runtime.references import References

Mark = Callable[[Key], None]


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


def build_registry(mark: Mark, references: References, store: ObjectStore) -> kopf.OperatorRegistry:
    """Return the handlers.

    Args:
        mark: Makes a key due.
        references: Which other objects a change wakes.
        store: Takes over what is heard.
    """
    registry = kopf.OperatorRegistry()

    def login(**kwargs: Any) -> Any:
        return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)

    async def object_changed(event: Any, resource: Any, **_: Any) -> None:
        metadata = event["object"]["metadata"]
        key = Key(resource.plural, metadata["namespace"], metadata["name"])
        kind = kind_of_key(key)
        if event["type"] == DELETED:
            gone = int(metadata["resourceVersion"])
            store.remove(kind, key.namespace, key.name, uid=metadata["uid"], version=gone)
        else:
            store.put(kind, event["object"])
        mark(key)
        for dependent in references.dependents(key):
            mark(dependent)

    kopf.on.login(registry=registry)(login)
    for kind in OUR_KINDS:
        kopf.on.event(GROUP, VERSION, kind.plural, registry=registry)(object_changed)
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
    # Lists come in parts, and what was handled is let go soon: parsed objects are large.
    settings.watching.chunk_size = 100
    settings.queueing.idle_timeout = 0.5
    return settings
