"""Conditions, and the one place where the outcome of a reconcile becomes Ready, Reconciling, Stalled and the rest."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from whetstone_api.vocabulary import ConditionType, Reason

from whetstone_operator.runtime.clock import to_rfc3339
from whetstone_operator.runtime.outcome import Interrupt, Paused, Retry, Stalled, Waiting

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"
_MESSAGE_LIMIT = 4096


class Conditions:
    """The conditions of one object while it is reconciled.

    Args:
        observed: `status.conditions` as stored.
        generation: `metadata.generation` that this reconcile decides for.
        now: Time of this reconcile.
    """

    def __init__(self, observed: list[dict[str, Any]], *, generation: int, now: datetime) -> None:
        self._items = {str(item["type"]): dict(item) for item in observed}
        self._before = {name: dict(item) for name, item in self._items.items()}
        self._generation = generation
        self._now = to_rfc3339(now)

    def set(self, condition: ConditionType, status: str | bool, *, reason: Reason | str, message: str) -> None:
        """Set a condition; its transition time changes only with its status."""
        text = {True: TRUE, False: FALSE}.get(status, status) if isinstance(status, bool) else status
        old = self._items.get(str(condition))
        since = old["lastTransitionTime"] if old and old["status"] == text else self._now
        self._items[str(condition)] = {
            "type": str(condition),
            "status": text,
            "reason": str(reason),
            "message": message[:_MESSAGE_LIMIT],
            "lastTransitionTime": since,
            "observedGeneration": self._generation,
        }

    def remove(self, condition: ConditionType) -> None:
        """Remove a condition if it is there."""
        self._items.pop(str(condition), None)

    def get(self, condition: ConditionType) -> dict[str, Any] | None:
        """Return a condition as it is now."""
        return self._items.get(str(condition))

    def is_true(self, condition: ConditionType) -> bool:
        """Return whether a condition is there and True."""
        item = self.get(condition)
        return item is not None and item["status"] == TRUE

    def is_new(self, condition: ConditionType | str) -> bool:
        """Return whether a condition was not stored before."""
        return str(condition) not in self._before

    def to_list(self) -> list[dict[str, Any]]:
        """Return all conditions in the order of the vocabulary, so that equal sets compare equal."""
        order = {str(name): index for index, name in enumerate(ConditionType)}
        return sorted(self._items.values(), key=lambda item: (order.get(item["type"], len(order)), item["type"]))

    def transitions(self) -> Iterator[dict[str, Any]]:
        """Yield the conditions whose status or reason differs from what was stored."""
        for item in self.to_list():
            old = self._before.get(item["type"])
            if old is None or (old["status"], old["reason"]) != (item["status"], item["reason"]):
                yield item


@dataclass(frozen=True)
class Finished:
    """The steps ran to their end: a server serves, a run has its result."""

    reason: Reason | str = Reason.SUCCEEDED
    message: str = ""


def settle(conditions: Conditions, outcome: Finished | Interrupt, *, run_to_end: bool) -> None:
    """Derive the summary conditions from how the steps ended.

    | Outcome  | Ready         | Reconciling | Stalled | run-to-end kinds only            |
    |----------|---------------|-------------|---------|----------------------------------|
    | Finished | True          | -           | -       | Complete=True                    |
    | Waiting  | False         | True        | -       | -                                |
    | Retry    | as it was, else False | True | -      | -                                |
    | Paused   | False         | -           | -       | Suspended=True                   |
    | Stalled  | False         | -           | True    | Failed=True                      |

    Args:
        conditions: Changed in place; conditions that steps have set stay as they are.
        outcome: How the steps ended.
        run_to_end: Whether the kind ends with a result.
    """
    reason, message = outcome.reason, outcome.message
    marks: dict[ConditionType, bool] = {
        ConditionType.RECONCILING: isinstance(outcome, Waiting | Retry),
        ConditionType.STALLED: isinstance(outcome, Stalled),
    }
    if run_to_end:
        marks[ConditionType.COMPLETE] = isinstance(outcome, Finished)
        marks[ConditionType.FAILED] = isinstance(outcome, Stalled)
        marks[ConditionType.SUSPENDED] = isinstance(outcome, Paused)
    # A hiccup of the API server says nothing about a server that serves.
    keep_ready = isinstance(outcome, Retry) and conditions.is_true(ConditionType.READY)
    if not keep_ready:
        conditions.set(ConditionType.READY, isinstance(outcome, Finished), reason=reason, message=message)
    for condition, present in marks.items():
        if present:
            conditions.set(condition, TRUE, reason=reason, message=message)
        else:
            conditions.remove(condition)
