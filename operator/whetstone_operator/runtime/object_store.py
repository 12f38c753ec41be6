"""What watches have told of objects, kept small: each as compressed JSON, found by name and by the labels of ours.

A fleet of a thousand objects of each kind has ten times as many children. As parsed JSON they would take hundreds of
megabytes; compressed they take a fraction of it, and are opened again faster than the API server answers. Objects of a
kind are much alike, so each is compressed as what it has beyond the first one of its kind.
"""

import sys
import time
import zlib
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json, to_json
from whetstone_api.vocabulary import GROUP

from whetstone_operator.kinds import DEPLOYMENT, Kind

Object = dict[str, Any]
_LEVEL = 3
_WINDOW = 1 << 15
"""Bytes that zlib looks back."""
_REMEMBERED_UIDS = 4096
_INDEXED = f"{GROUP}/"


@dataclass(frozen=True, slots=True)
class Place:
    """Where an object is.

    Args:
        plural: Its kind's plural.
        namespace: Its namespace.
        name: Its name.
    """

    plural: str
    namespace: str
    name: str


@dataclass(slots=True)
class _Entry:
    version: int
    uid: str
    data: bytes
    labels: tuple[tuple[str, str], ...]
    at: float
    doubted: bool = False


class ObjectStore:
    """Objects by place.

    Args:
        clock: Seconds of a steady clock.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._entries: dict[Place, _Entry] = {}
        self._by_label: defaultdict[tuple[str, str, str, str], set[str]] = defaultdict(set)
        self._gone: OrderedDict[str, int] = OrderedDict()
        self._shapes: dict[str, bytes] = {}
        """By plural, what the objects of a kind are compressed against: it never changes."""

    def put(self, kind: Kind, obj: Object) -> None:
        """Take an object over, unless a newer state of it is held or it was seen to be gone."""
        metadata = obj["metadata"]
        uid, version = metadata["uid"], int(metadata["resourceVersion"])
        if version <= self._gone.get(uid, -1):
            return
        place = _place(kind, metadata["namespace"], metadata["name"])
        before = self._entries.get(place)
        if before is not None and before.uid == uid and before.version >= version:
            if before.version == version:
                before.at, before.doubted = self._clock(), False
            return
        if before is not None:
            self._drop(place, before)
        labels = tuple(
            (sys.intern(name), sys.intern(value))
            for name, value in (metadata.get("labels") or {}).items()
            if name.startswith(_INDEXED)
        )
        data = self._pack(kind, obj)
        self._entries[place] = _Entry(version=version, uid=uid, data=data, labels=labels, at=self._clock())
        for name, value in labels:
            self._by_label[kind.plural, place.namespace, name, value].add(place.name)

    def remove(self, kind: Kind, namespace: str, name: str, *, uid: str, version: int) -> None:
        """Forget an object that is gone; answers to requests of before that come late do not bring it back.

        Args:
            kind: Its kind.
            namespace: Its namespace.
            name: Its name.
            uid: Its uid: another one of its name stays.
            version: The resource version at which it was gone.
        """
        self._gone[uid] = version
        if len(self._gone) > _REMEMBERED_UIDS:
            self._gone.popitem(last=False)
        place = _place(kind, namespace, name)
        entry = self._entries.get(place)
        if entry is not None and entry.uid == uid and entry.version <= version:
            self._drop(place, entry)

    def doubt(self, kind: Kind, namespace: str, name: str) -> None:
        """Give an object out no more until something newer is heard of it: it was changed or deleted just now."""
        entry = self._entries.get(_place(kind, namespace, name))
        if entry is not None:
            entry.doubted = True

    def doubts(self, kind: Kind, namespace: str, name: str) -> bool:
        """Return whether an object is held, but not to be relied on."""
        entry = self._entries.get(_place(kind, namespace, name))
        return entry is not None and entry.doubted

    def get(self, kind: Kind, namespace: str, name: str, *, within: float | None = None) -> Object | None:
        """Return an object; None when none is held that may be relied on.

        Args:
            kind: Its kind.
            namespace: Its namespace.
            name: Its name.
            within: Seconds within which it must have been heard of.
        """
        place = _place(kind, namespace, name)
        entry = self._entries.get(place)
        if entry is None or entry.doubted or (within is not None and self._clock() - entry.at > within):
            return None
        return self._open(place)

    def select(self, kind: Kind, namespace: str, labels: Mapping[str, str]) -> list[Object] | None:
        """Return the objects of a namespace that carry labels, in the order of their names.

        Args:
            kind: Their kind.
            namespace: Their namespace.
            labels: What they carry; one at least is a label of ours.

        Returns:
            None when one of them is not to be relied on.
        """
        ours = [(name, value) for name, value in labels.items() if name.startswith(_INDEXED)]
        sets = [self._by_label.get((kind.plural, namespace, name, value), set()) for name, value in ours]
        places = [_place(kind, namespace, name) for name in sorted(set.intersection(*sets))]
        if any(self._entries[place].doubted for place in places):
            return None
        found = [self._open(place) for place in places]
        return [obj for obj in found if labels.items() <= (obj["metadata"].get("labels") or {}).items()]

    def vanished(self, kind: Kind, namespace: str | None, *, there: Iterable[str], version: int) -> list[Object]:
        """Return what is held of a kind, is not newer than a list of all of them, and is not in it.

        Args:
            kind: The kind.
            namespace: The namespace that was listed; None for all.
            there: The uids in the list.
            version: The list's resource version.
        """
        known = frozenset(there)
        return [
            self._open(place)
            for place, entry in self._entries.items()
            if place.plural == kind.plural
            and namespace in (None, place.namespace)
            and entry.uid not in known
            and entry.version <= version
        ]

    def _pack(self, kind: Kind, obj: Object) -> bytes:
        text = _text(kind, obj)
        packer = zlib.compressobj(_LEVEL, zdict=self._shapes.setdefault(kind.plural, text[-_WINDOW:]))
        return packer.compress(text) + packer.flush()

    def _open(self, place: Place) -> Object:
        text = zlib.decompressobj(zdict=self._shapes[place.plural]).decompress(self._entries[place].data)
        obj: Object = from_json(text)
        return obj

    def _drop(self, place: Place, entry: _Entry) -> None:
        del self._entries[place]
        for name, value in entry.labels:
            key = (place.plural, place.namespace, name, value)
            self._by_label[key].discard(place.name)
            if not self._by_label[key]:
                del self._by_label[key]


def _place(kind: Kind, namespace: str, name: str) -> Place:
    return Place(kind.plural, namespace, name)


def _text(kind: Kind, obj: Object) -> bytes:
    """Return an object as JSON, without the half of most objects that says who wrote which field.

    Of Deployments it is read when the spec was written; more of it is not kept of them either.
    """
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    writers = obj["metadata"].get("managedFields") or []
    if writers and kind is DEPLOYMENT:
        metadata["managedFields"] = [
            {**one, "fieldsV1": {part: {} for part in one.get("fieldsV1") or {}}} for one in writers
        ]
    return to_json({**obj, "apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata})
