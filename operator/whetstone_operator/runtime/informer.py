"""Keeps the store in step with the API server: lists each kind of child in pages, then watches it.

kopf watches the kinds of ours. Children are ten times as many and only wake their owner, so they go without kopf's task
and memory for each object. What was deleted while no watch ran is found by comparing the next list with the store.

Protocol: https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from whetstone_operator.kinds import Kind
from whetstone_operator.kube import KubeAio, KubeError, Object
from whetstone_operator.runtime.news import DELETED
from whetstone_operator.runtime.object_store import ObjectStore
from whetstone_operator.runtime.queue import Backoff

logger = logging.getLogger(__name__)
_BOOKMARK, _ERROR = "BOOKMARK", "ERROR"


@dataclass(frozen=True, kw_only=True)
class Watched:
    """What is watched.

    Args:
        kind: The kind.
        labels: What its objects carry; None for any value.
        fields: Field selector that they match; None for all.
    """

    kind: Kind
    labels: Mapping[str, str | None]
    fields: str | None = None

    def matches(self, obj: Object) -> bool:
        """Return whether the watch surely tells of an object, and of its end. Of fields the API server alone knows."""
        if self.fields is not None:
            return False
        found = obj["metadata"].get("labels") or {}
        return all(name in found and value in (None, found[name]) for name, value in self.labels.items())


Changed = Callable[[Kind, Mapping[str, Any]], None]


class Informer:
    """Follows one kind in one namespace, or in all.

    Args:
        kube: The client.
        store: Where objects are kept.
        watched: What is followed.
        namespace: Where; None for everywhere.
        changed: Hears each event once the store has it: `type`, None for what a list tells, and `object`.
        backoff: Pauses after failures.
    """

    def __init__(
        self,
        kube: KubeAio,
        store: ObjectStore,
        *,
        watched: Watched,
        namespace: str | None,
        changed: Changed,
        backoff: Backoff | None = None,
    ) -> None:
        self._kube, self._store, self._namespace, self._changed = kube, store, namespace, changed
        self._kind, self._watched = watched.kind, watched
        self._backoff = backoff or Backoff(longest=15.0)
        self.synced = asyncio.Event()
        """Set once the store holds all that is there."""

    async def run(self) -> None:
        """Follow it for ever."""
        failures = 0
        while True:
            try:
                version = await self._list()
                self.synced.set()
                failures = 0
                await self._watch(version)
            except KubeError as error:
                failures += 1
                logger.warning("%s cannot be followed, the next try comes soon: %s", self._kind.plural, error)
                await asyncio.sleep(self._backoff.pause(failures))

    async def _list(self) -> str:
        """Take over all objects; return the version from which to watch."""
        uids: set[str] = set()
        version = ""
        watched = self._watched
        pages = self._kube.pages(self._kind, self._namespace, watched.labels, fields=watched.fields)
        async for items, version in pages:  # noqa: B007
            for obj in items:
                uids.add(obj["metadata"]["uid"])
                self._take(None, obj)
        for obj in self._store.vanished(self._kind, self._namespace, there=uids, version=int(version)):
            obj["metadata"]["resourceVersion"] = version
            self._take(DELETED, obj)
        return version

    async def _watch(self, version: str) -> None:
        """Take over changes until the version is too old to go on from.

        A stream that breaks off is begun anew from where it was.
        """
        failures, watched = 0, self._watched
        while True:
            try:
                changes = self._kube.changes(
                    self._kind, self._namespace, watched.labels, version=version, fields=watched.fields
                )
                async for event in changes:
                    failures = 0
                    version = self._hear(event)
            except KubeError as error:
                if error.status == HTTPStatus.GONE:
                    return
                failures += 1
                logger.info("the watch of %s broke off: %s", self._kind.plural, error)
                await asyncio.sleep(self._backoff.pause(failures))

    def _hear(self, event: Mapping[str, Any]) -> str:
        """Take over an event of a watch; return its version."""
        change, obj = event["type"], event["object"]
        if change == _ERROR:
            raise KubeError(int(obj.get("code") or 0), str(obj.get("message")))
        if change != _BOOKMARK:
            self._take(change, obj)
        return str(obj["metadata"]["resourceVersion"])

    def _take(self, change: str | None, obj: Object) -> None:
        metadata = obj["metadata"]
        if change == DELETED:
            version = int(metadata["resourceVersion"])
            self._store.remove(
                self._kind, metadata["namespace"], metadata["name"], uid=metadata["uid"], version=version
            )
        else:
            self._store.put(self._kind, obj)
        self._changed(self._kind, {"type": change, "object": obj})
