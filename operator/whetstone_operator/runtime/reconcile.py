"""One reconcile: run the steps, settle the conditions, write the status once, tell what changed."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from typing import Any

from pydantic_core import from_json, to_json
from whetstone_api.schema import NOT_OBSERVED, Resource, RunToEndSpec
from whetstone_api.vocabulary import API_VERSION, ConditionType, Reason

from whetstone_operator.kinds import Key, key_of, kind_of_key
from whetstone_operator.kube import Kube, KubeError
from whetstone_operator.runtime.clock import Clock
from whetstone_operator.runtime.conditions import FALSE, Conditions, Finished, settle
from whetstone_operator.runtime.events import NORMAL, WARNING, EventRecorder
from whetstone_operator.runtime.leaps import Leaps
from whetstone_operator.runtime.object_series import OBJECTS
from whetstone_operator.runtime.outcome import Interrupt, Retry, Stalled, Waiting
from whetstone_operator.runtime.ownership import NameTakenError
from whetstone_operator.runtime.progress import ProgressBoard
from whetstone_operator.runtime.queue import Result
from whetstone_operator.runtime.references import References
from whetstone_operator.runtime.upgrades import Upgrades
from whetstone_operator.settings import Settings
from whetstone_operator.sidecars import Sidecars

logger = logging.getLogger(__name__)
_FORBIDDEN_PAUSE_SECONDS = 30.0
_SUMMARY = frozenset(
    {
        ConditionType.READY,
        ConditionType.RECONCILING,
        ConditionType.STALLED,
        ConditionType.COMPLETE,
        ConditionType.FAILED,
        ConditionType.SUSPENDED,
    }
)
_UNDER_WAY = frozenset(
    {
        *(Reason.LOADING, Reason.NOT_PUBLISHED, Reason.REFERENCE_NOT_FOUND, Reason.PROGRESSING),
        *(Reason.QUEUED, Reason.PREEMPTED, Reason.SUSPENDED),
    }
)
"""Reasons of a False finding that time alone mends."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """What all reconciles share."""

    kube: Kube
    settings: Settings
    clock: Clock
    board: ProgressBoard
    recorder: EventRecorder
    sidecars: Sidecars
    upgrades: Upgrades
    leaps: Leaps
    references: References = field(default_factory=References)


class Work[R: Resource]:
    """One object while it is reconciled.

    Attributes:
        context: What all reconciles share.
        resource: The object, parsed.
        key: Its key.
        now: Time of this reconcile.
        status: `status` in wire form; steps change it, it is written once at the end. `conditions` and
            `observedGeneration` in it are written from elsewhere.
        conditions: Its conditions; the summary ones come from `settle`.
        new: Whether no reconcile of it has come to an end. It may have children all the same, for the operator may die
            at any moment: what follows from them is then left to the next reconcile, which the status written wakes.
    """

    def __init__(self, context: Context, resource: R, *, status: dict[str, Any]) -> None:
        self.context = context
        self.resource = resource
        self.key = key_of(resource)
        self.now: datetime = context.clock.now()
        self.status = _copied(status)
        self.conditions = Conditions(
            status.get("conditions") or [], generation=resource.metadata.generation, now=self.now
        )
        self.new = status.get("observedGeneration", NOT_OBSERVED) == NOT_OBSERVED
        self.run_to_end = isinstance(getattr(resource, "spec", None), RunToEndSpec)
        self.ended: Finished | None = None
        self.requeue_after: float | None = None
        self.references: set[Key] = set()
        self.events: list[tuple[str, str, str]] = []

    @property
    def namespace(self) -> str:
        """Namespace of the object."""
        return self.resource.metadata.namespace

    @property
    def name(self) -> str:
        """Name of the object."""
        return self.resource.metadata.name

    def finish(self, reason: Reason, message: str) -> None:
        """End with success: Ready, and Complete on run-to-end kinds. Later steps still run."""
        self.ended = Finished(reason, message)

    def look_again(self, after_seconds: float) -> None:
        """Ask for another reconcile after some seconds; of several wishes the shortest counts."""
        self.requeue_after = min(after_seconds, self.requeue_after or after_seconds)

    def depends_on(self, plural: str, name: str) -> None:
        """Wake this object when another one of its namespace changes (`references.ANY`: any one of the kind)."""
        self.references.add(Key(plural, self.namespace, name))

    def tell(self, *, kind: str, reason: Reason, message: str) -> None:
        """Record an Event that no condition stands for; sent after the status is written."""
        self.events.append((kind, str(reason), message))


type Step[R: Resource] = Callable[[Work[R]], Awaitable[None]]


async def load[R: Resource](context: Context, key: Key, model: type[R]) -> Work[R] | None:
    """Read an object; None when it is gone or going (its children go by owner references)."""
    obj = await context.kube.get(kind_of_key(key), key.namespace, key.name)
    if obj is None or obj["metadata"].get("deletionTimestamp"):
        context.board.forget(key)
        context.recorder.forget(key)
        context.references.declare(key, frozenset())
        OBJECTS.forget(key)
        return None
    status = obj.get("status") or {}
    return Work(context, model.model_validate({**obj, "status": status}), status=status)


async def run_steps[R: Resource](work: Work[R], steps: Sequence[Step[R]]) -> Result:
    """Run the steps in order until one interrupts; settle; write the status if it changed; record Events."""
    before = _copied(work.status)
    outcome = await _outcome(work, steps)
    settle(work.conditions, outcome, run_to_end=work.run_to_end)
    work.status["conditions"] = work.conditions.to_list()
    work.status["observedGeneration"] = work.resource.metadata.generation
    work.context.references.declare(work.key, frozenset(work.references))
    if work.status != before and not await _write(work):
        return Result()
    OBJECTS.show(work.key, work.status)
    await _tell(work, outcome)
    return _result(work, outcome)


def _copied(status: dict[str, Any]) -> dict[str, Any]:
    """Return a copy in depth; a status is JSON, and as such copied in a third of the time."""
    copied: dict[str, Any] = from_json(to_json(status))
    return copied


async def _outcome[R: Resource](work: Work[R], steps: Sequence[Step[R]]) -> Finished | Interrupt:
    try:
        for step in steps:
            await step(work)
    except Interrupt as interrupt:
        return interrupt
    except KubeError as error:
        return _refusal(error)
    except Exception as error:
        logger.exception("a step of %s failed", work.key)
        return Retry(Reason.INTERNAL_ERROR, f"{type(error).__name__}: {error}")
    if work.ended is None:
        return Waiting(Reason.PROGRESSING, "work is under way")
    return work.ended


def _refusal(error: KubeError) -> Interrupt:
    if isinstance(error, NameTakenError):
        return Stalled(Reason.NAME_TAKEN, error.message)
    if error.refused:
        return Stalled(Reason.APPLY_REFUSED, f"the API server refused an object: {error.message}")
    if error.status == HTTPStatus.FORBIDDEN:
        message = f"the API server forbids it (rights, quota or policy): {error.message}"
        return Waiting(Reason.APPLY_REFUSED, message, _FORBIDDEN_PAUSE_SECONDS)
    return Retry(Reason.INTERNAL_ERROR, f"the API server failed: {error.message}")


async def _write[R: Resource](work: Work[R]) -> bool:
    """Write the status; False when the object is gone, or another one of its name took its place."""
    metadata = work.resource.metadata
    written = await work.context.kube.apply_status(
        {
            "apiVersion": API_VERSION,
            "kind": work.resource.kind_name,
            "metadata": {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid},
            "status": work.status,
        }
    )
    return written is not None


async def _tell[R: Resource](work: Work[R], outcome: Finished | Interrupt) -> None:
    """Record one Event a changed reason: several conditions often change for the same one.

    A finding of a server that is there from the start and not negative is no change: it would only cost every new
    server Events. What runs to an end has its findings when they are news.
    """
    events: dict[tuple[str, str], str] = {}
    for item in work.conditions.transitions():
        quiet = item["type"] not in _SUMMARY and item["status"] != FALSE and not work.run_to_end
        if quiet and work.conditions.is_new(item["type"]):
            continue
        kind = WARNING if _is_bad(item, outcome) else NORMAL
        events.setdefault((item["reason"], item["message"]), kind)
    for (reason, message), kind in events.items():
        await work.context.recorder.record(work.resource, kind=kind, reason=reason, message=message)
    for kind, reason, message in work.events:
        await work.context.recorder.record(work.resource, kind=kind, reason=reason, message=message)


def _is_bad(condition: Mapping[str, Any], outcome: Finished | Interrupt) -> bool:
    """Return whether a change deserves a warning: the object is stalled, or a finding about it is negative."""
    if condition["type"] in _SUMMARY:
        return isinstance(outcome, Stalled | Retry)
    return condition["status"] == FALSE and condition["reason"] not in _UNDER_WAY


def _result[R: Resource](work: Work[R], outcome: Finished | Interrupt) -> Result:
    if isinstance(outcome, Retry):
        return Result(failed=True)
    wishes = [work.requeue_after]
    if isinstance(outcome, Waiting):
        wishes.append(outcome.after_seconds)
    if not work.run_to_end or isinstance(outcome, Waiting):
        wishes.append(work.context.settings.resync_seconds)
    given = [wish for wish in wishes if wish is not None]
    return Result(requeue_after=min(given) if given else None)
