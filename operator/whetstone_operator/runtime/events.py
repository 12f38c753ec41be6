"""Events of `events.k8s.io/v1`, named so that `kubectl describe` lists them in the order in which they came about.

kubectl sorts Events by a time that only those of `v1` have; others stay in the order of their names. So a name ends
with the time of its Event. The same words again are another Event, unless they were told last, or often: then the
series of the one that tells them is counted up. What was told is remembered by this process alone, for it saves Events
and decides nothing.
"""

import logging
import os
from dataclasses import dataclass, field
from typing import Any, Final

from whetstone_api.schema import Resource
from whetstone_api.vocabulary import API_VERSION, FIELD_MANAGER, Reason

from whetstone_operator.kinds import Key, key_of
from whetstone_operator.kube import Kube, KubeError
from whetstone_operator.runtime.clock import Clock, to_micro_time

logger = logging.getLogger(__name__)
NORMAL, WARNING = "Normal", "Warning"
_NOTE_LIMIT = 1024
_KEPT_SECONDS: Final = 3600.0
"""Kubernetes keeps Events for that long unless told otherwise."""
_APART: Final = 5
"""Events with equal words about one object, within that time; more are counted up."""


@dataclass
class _Story:
    """What was told of one object.

    Args:
        uid: The object's uid.
        began: Steady time at which the first of it was told.
        last: The words that were told last.
        names: Names of the Events with some words, in their order.
    """

    uid: str
    began: float
    last: tuple[str, ...] = ()
    names: dict[tuple[str, ...], list[str]] = field(default_factory=dict)


class EventRecorder:
    """Writes Events about our objects; losing one is logged and never fails a reconcile.

    Args:
        kube: Where to write.
        clock: Time of the Events.
        instance: Name of this operator's pod.
    """

    def __init__(self, kube: Kube, *, clock: Clock, instance: str | None = None) -> None:
        self._kube = kube
        self._clock = clock
        self._instance = instance or os.environ.get("HOSTNAME") or FIELD_MANAGER
        self._stories: dict[Key, _Story] = {}
        self._stamp = 0

    async def record(self, resource: Resource, *, kind: str, reason: Reason | str, message: str) -> None:
        """Write an Event.

        Args:
            resource: The object that it is about.
            kind: Normal or Warning.
            reason: Reason of the condition that changed.
            message: Sentence for people.
        """
        event = self._build(resource, kind=kind, reason=str(reason), message=message[:_NOTE_LIMIT])
        try:
            await self._kube.record_event(event)
        except KubeError as error:
            logger.warning("event %s on %s lost: %s", reason, resource.metadata.name, error)

    def forget(self, key: Key) -> None:
        """Drop what was told of an object that is gone."""
        self._stories.pop(key, None)

    def _build(self, resource: Resource, *, kind: str, reason: str, message: str) -> dict[str, Any]:
        metadata = resource.metadata
        now = to_micro_time(self._clock.now())
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": self._name(resource, (kind, reason, message)),
                "namespace": metadata.namespace,
            },
            "eventTime": now,
            "reportingController": "whetstone.dev/operator",
            "reportingInstance": self._instance,
            "action": "Reconcile",
            "type": kind,
            "reason": reason,
            "note": message,
            "regarding": {
                "apiVersion": API_VERSION,
                "kind": resource.kind_name,
                "namespace": metadata.namespace,
                "name": metadata.name,
                "uid": metadata.uid,
            },
        }

    def _name(self, resource: Resource, words: tuple[str, ...]) -> str:
        """Return the name of the Event that tells these words: a new one, or that of the series to count up."""
        steady, key, uid = self._clock.steady(), key_of(resource), resource.metadata.uid
        story = self._stories.get(key)
        if story is None or story.uid != uid or steady - story.began > _KEPT_SECONDS:
            story = self._stories[key] = _Story(uid, steady)
        told = story.names.setdefault(words, [])
        if not told or (words != story.last and len(told) < _APART):
            # A clock that stands still or goes back must not make two Events one.
            self._stamp = max(int(self._clock.now().timestamp() * 1_000_000), self._stamp + 1)
            told.append(f"{resource.metadata.name}.{self._stamp:016x}")
        story.last = words
        return told[-1]
