"""When to ask engine pods again that are not settled, should the report of a change get lost. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from whetstone_operator.controllers.adapters import PodView
from whetstone_operator.runtime.clock import from_rfc3339

SHORTEST_SECONDS = 5.0
LONGEST_SECONDS = 30.0
_SHARE = 0.1
"""A pod that has not settled for long will hardly do so within the next seconds."""


def next_look(
    pods: Sequence[Mapping[str, Any]], views: Sequence[PodView], *, revision: int, now: datetime
) -> float | None:
    """Return the seconds until pods should be asked again; None where none needs it.

    A pod without an address cannot be asked; the watch tells when it has one.

    Args:
        pods: The live pods.
        views: What each of them answered.
        revision: The desired state's revision: the seconds of the clock at which it changed.
        now: Time of this reconcile.
    """
    since = [
        max(_started(pod, now), float(revision))
        for pod, view in zip(pods, views, strict=True)
        if (pod.get("status") or {}).get("podIP") and not _settled(view, revision)
    ]
    if not since:
        return None
    return min(LONGEST_SECONDS, max(SHORTEST_SECONDS, (now.timestamp() - max(since)) * _SHARE))


def _settled(view: PodView, revision: int) -> bool:
    return view.state is not None and view.state.settled and view.state.revision >= revision


def _started(pod: Mapping[str, Any], now: datetime) -> float:
    started = pod["status"].get("startTime")
    return from_rfc3339(started).timestamp() if started else now.timestamp()
