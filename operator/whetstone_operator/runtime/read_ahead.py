"""Reads of one reconcile that are known beforehand, made at once and handed out when a step asks."""

import asyncio
from collections.abc import Iterable
from typing import Any

from whetstone_operator.kinds import POD, Kind
from whetstone_operator.kube import Kube, Object

Objects = list[Object]


class ReadAhead:
    """A `Kube` of one reconcile.

    What was read ahead is given once; whoever asks again gets what is stored then.

    Args:
        kube: The client.
    """

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._objects: dict[tuple[Kind, str, str], Object | None] = {}
        self._pods: dict[str, Objects] = {}

    async def fetch(
        self,
        namespace: str,
        objects: Iterable[tuple[Kind, str]],
        *,
        own: Iterable[tuple[Kind, str]],
        pods: dict[str, str],
        new: bool,
    ) -> None:
        """Read objects by kind and name, and the pods that carry labels, all at the same time.

        Args:
            namespace: Where they are.
            objects: Objects of others.
            own: Children of the object that is reconciled.
            pods: Labels of its pods.
            new: It has neither children nor pods yet, so these are not asked for.

        Raises:
            KubeError: As `Kube`.
        """
        own = list(own)
        wanted = list(dict.fromkeys((*objects, *(() if new else own))))
        listing = [] if new else [self._kube.list(POD, namespace, pods)]
        listed, found = await asyncio.gather(
            asyncio.gather(*listing), asyncio.gather(*(self._kube.get(kind, namespace, name) for kind, name in wanted))
        )
        self._pods = {_selector(pods): listed[0] if listed else []}
        self._objects = {(kind, namespace, name): None for kind, name in own}
        self._objects |= {(kind, namespace, name): obj for (kind, name), obj in zip(wanted, found, strict=True)}

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Return an object, or None when it does not exist."""
        key = (kind, namespace, name)
        return self._objects.pop(key) if key in self._objects else await self._kube.get(kind, namespace, name)

    async def list(self, kind: Kind, namespace: str | None, labels: dict[str, str] | None = None) -> Objects:
        """Return the objects of a namespace that carry the labels."""
        if kind is POD and labels and _selector(labels) in self._pods:
            return self._pods.pop(_selector(labels))
        return await self._kube.list(kind, namespace, labels)

    async def apply(self, obj: Object, *, look: bool = True, stored: Object | None = None) -> Object:
        """Apply an object on the server side."""
        return await self._kube.apply(obj, look=look, stored=stored)

    async def create(self, obj: Object) -> Object:
        """Create an object."""
        return await self._kube.create(obj)


def _selector(labels: dict[str, Any]) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
