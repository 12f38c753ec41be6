"""Events of `events.k8s.io/v1`: one object for equal words, counted up in its series."""

import hashlib
import logging
import os
from typing import Any

from whetstone_api.schema import Resource
from whetstone_api.vocabulary import API_VERSION, FIELD_MANAGER, Reason

from whetstone_operator.kube import Kube, KubeError
from whetstone_operator.runtime.clock import Clock, to_micro_time

logger = logging.getLogger(__name__)
NORMAL, WARNING = "Normal", "Warning"
_NOTE_LIMIT = 1024


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

    def _build(self, resource: Resource, *, kind: str, reason: str, message: str) -> dict[str, Any]:
        metadata = resource.metadata
        words = "\n".join((metadata.uid, kind, reason, message))
        now = to_micro_time(self._clock.now())
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": f"{metadata.name}.{hashlib.sha256(words.encode()).hexdigest()[:16]}",
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
