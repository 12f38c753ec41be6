"""The client that answers from what watches have told, and asks the API server for the rest.

What the operator writes is taken over from the answer, so that it never reads less than it has written. What it deletes
is asked for again until a watch has told of it.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from whetstone_api.vocabulary import GROUP, Label

from whetstone_operator.kinds import CONFIG_MAP, OUR_KINDS, POD, Kind, kind_of
from whetstone_operator.kube import KubeAio, Object
from whetstone_operator.runtime.informer import Watched
from whetstone_operator.runtime.object_store import ObjectStore
from whetstone_operator.transport import Transport

OURS_HOLD_SECONDS = 60.0
"""kopf, which watches the kinds of ours, tells nothing of what was deleted while no watch ran."""
REQUESTS_AT_ONCE: Final = 16
"""Beside watches. Each connection holds a quarter of a megabyte for TLS, and more of them are not answered sooner: one
process writes and reads them all."""


class InformedKube(KubeAio):
    """`KubeAio` that reads from the store what informers follow.

    Args:
        transport: As for `KubeAio`.
    """

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self.store = ObjectStore()
        self._watched: dict[Kind, Watched] = {}
        self._slots = asyncio.Semaphore(REQUESTS_AT_ONCE)

    def prompt(self) -> KubeAio:
        """Return a client over the same connections whose requests wait for no others, for what must not be late."""
        return KubeAio(self._transport)

    def rely_on(self, watched: Iterable[Watched]) -> None:
        """Answer from the store for these kinds: from now on it holds all of their objects."""
        self._watched = {one.kind: one for one in watched}

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        within = OURS_HOLD_SECONDS if kind in OUR_KINDS else None
        if kind in OUR_KINDS or kind in self._watched:
            found = self.store.get(kind, namespace, name, within=within)
            if found is not None or self._is_absent(kind, namespace, name):
                return found
        return self._keep(kind, await super().get(kind, namespace, name))

    async def list(self, kind: Kind, namespace: str | None, labels: dict[str, str] | None = None) -> list[Object]:
        if namespace is not None and labels and self._tells_all(kind, labels):
            found = self.store.select(kind, namespace, labels)
            if found is not None:
                return found
        return await super().list(kind, namespace, labels)

    async def create(self, obj: Object) -> Object:
        created = await super().create(obj)
        self._keep(kind_of(obj), created)
        return created

    async def merge(self, obj: Object, change: Object) -> Object | None:
        merged = self._keep(kind_of(obj), await super().merge(obj, change))
        if merged is None:
            self._doubt(kind_of(obj), obj["metadata"]["namespace"], obj["metadata"]["name"])
        return merged

    async def delete(self, kind: Kind, namespace: str, name: str, *, children_first: bool = False) -> None:
        await super().delete(kind, namespace, name, children_first=children_first)
        self._doubt(kind, namespace, name)

    async def _json(self, method: str, path: str, **options: Any) -> Object:
        async with self._slots:
            return await super()._json(method, path, **options)

    async def _apply(self, obj: Object, *, subresource: str | None = None, force: bool = True) -> Object:
        applied = await super()._apply(obj, subresource=subresource, force=force)
        self._keep(kind_of(obj), applied)
        return applied

    def _is_absent(self, kind: Kind, namespace: str, name: str) -> bool:
        """Return whether an object that is not held need not be asked for: none of ours is there.

        ConfigMaps are also users', who give them no label of ours, and pods are also those of Jobs.
        """
        complete = kind in self._watched and kind not in (CONFIG_MAP, POD)
        return complete and not self.store.doubts(kind, namespace, name)

    def _tells_all(self, kind: Kind, labels: dict[str, str]) -> bool:
        """Return whether all objects with these labels are followed: a label of ours is on our objects only."""
        watched = self._watched.get(kind)
        if watched is None or not any(name.startswith(f"{GROUP}/") for name in labels):
            return False
        return all(name in labels or name == Label.MANAGED_BY for name in watched.labels)

    def _keep(self, kind: Kind, obj: Object | None) -> Object | None:
        watched = self._watched.get(kind)
        if obj is not None and (kind in OUR_KINDS or (watched is not None and watched.matches(obj))):
            self.store.put(kind, obj)
        return obj

    def _doubt(self, kind: Kind, namespace: str, name: str) -> None:
        if kind in OUR_KINDS or kind in self._watched:
            self.store.doubt(kind, namespace, name)
