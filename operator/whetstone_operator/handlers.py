"""kopf's part: watch our kinds, and mark keys dirty. Nothing here can fail or block.

All state that kopf could keep on objects is off: no finalizers, no annotations, no status. What must happen is
decided by the reconcilers from the objects as they are.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
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


@dataclass(frozen=True, kw_only=True)
class Listener:
    """Takes what kopf tells of our objects.

    Args:
        mark: Makes a key due.
        references: Which other objects a change wakes.
        store: Takes over what is heard.
    """

    mark: Mark
    references: References
    store: ObjectStore
    _read: dict[Key, str] = field(default_factory=dict, init=False)
    """Versions of the objects that were read and made due, until kopf has told of them."""

    def read(self, plural: str, obj: dict[str, Any]) -> None:
        """Take over an object that was read at the start, and make it due.

        kopf begins with a list of its own, which tells the same once more: with many objects those were reconciled
        twice whose turn came between the two lists.

        Args:
            plural: Plural of its kind.
            obj: The object.
        """
        key = _key(plural, obj)
        self.store.put(kind_of_key(key), obj)
        self._read[key] = obj["metadata"]["resourceVersion"]
        self.mark(key)

    def hear(self, plural: str, event: Mapping[str, Any]) -> None:
        """Take over an event, and make due what it says something new to.

        Args:
            plural: Plural of the object's kind.
            event: `type` and `object`, as in the watch; no type for what was there before the watch.
        """
        metadata, key = event["object"]["metadata"], _key(plural, event["object"])
        kind = kind_of_key(key)
        if event["type"] == DELETED:
            gone = int(metadata["resourceVersion"])
            self.store.remove(kind, key.namespace, key.name, uid=metadata["uid"], version=gone)
        else:
            self.store.put(kind, event["object"])
        if self._read.pop(key, None) == metadata["resourceVersion"] and event["type"] is None:
            return
        self.mark(key)
        for dependent in self.references.dependents(key):
            self.mark(dependent)


def _key(plural: str, obj: Mapping[str, Any]) -> Key:
    return Key(plural, obj["metadata"]["namespace"], obj["metadata"]["name"])


def build_registry(listener: Listener) -> kopf.OperatorRegistry:
    """Return the handlers, which tell a listener all that is heard."""
    registry = kopf.OperatorRegistry()

    def login(**kwargs: Any) -> Any:
        return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)

    async def object_changed(event: Any, resource: Any, **_: Any) -> None:
        listener.hear(resource.plural, event)

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
