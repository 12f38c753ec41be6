"""What a training will cost and has cost so far, from its pods and the price table. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from whetstone_api.training_cost import MAX_COUNTED_PODS, PodUse, TrainingCost
from whetstone_api.training_plan import EstimatedCost, MemoryEstimate
from whetstone_api.training_result import TrainingProgress

from whetstone_operator.prices import DevicePrice, Prices, amount_text, asked_devices
from whetstone_operator.runtime.clock import from_rfc3339, to_rfc3339

COUNT_SECONDS: Final = 60.0
"""A running pod's time is counted anew after so long: each count writes the status."""
EARLIER: Final = "earlier"
_HOUR: Final = Decimal(3600)
_TERA: Final = Decimal(10) ** 12


def estimated_cost(estimate: MemoryEstimate, job: Mapping[str, Any], prices: Prices) -> EstimatedCost | None:
    """Return what a training will cost; None where the table does not name its device.

    Args:
        estimate: What Prepare found.
        job: The Job that trains, as it would be created.
        prices: The table.
    """
    pod = job["spec"]["template"]
    price = prices.of_pod(pod)
    if price is None:
        return None
    devices = asked_devices(pod, price.resource) * int(job["spec"].get("completions") or 1)
    hours, basis = _device_hours(estimate, price)
    return EstimatedCost(
        resource=price.resource,
        per_hour=amount_text(price.per_hour),
        currency=prices.currency or None,
        devices=amount_text(devices),
        device_hours=None if hours is None else amount_text(hours),
        amount=None if hours is None else amount_text(hours * price.per_hour),
        basis=basis,
    )


def _device_hours(estimate: MemoryEstimate, price: DevicePrice) -> tuple[Decimal | None, str]:
    """Return the hours of one device that a training takes, and what that stands on."""
    if estimate.operations is None:
        return None, "unknown: the base model's shape does not tell how many operations a step takes"
    if price.teraflops is None:
        return None, f"unknown: the price table says no teraflops for {price.resource}"
    hours = Decimal(estimate.operations) / (price.teraflops * _TERA) / _HOUR
    return hours, (
        f"{estimate.operations} operations for {estimate.tokens} tokens, at {amount_text(price.teraflops)} teraflops a"
        " device as the price table says; the steps alone, without start, evaluation and publishing"
    )


def training_cost(
    before: TrainingCost | None,
    pods: Sequence[Mapping[str, Any]],
    prices: Prices,
    *,
    progress: TrainingProgress | None,
    now: datetime,
) -> TrainingCost | None:
    """Return the cost so far; what was counted before where nothing is to be counted yet.

    Args:
        before: What the status says.
        pods: Pods of the training Job that are there. Those that are gone keep what was counted of them.
        prices: The table.
        progress: Where the training is.
        now: The time.
    """
    price = next((one for pod in pods if (one := prices.of_pod(pod)) is not None), None)
    if price is None:
        return before
    known = {} if before is None or before.resource != price.resource else {one.name: one for one in before.pods}
    found = {use.name: use for pod in pods if (use := _use(pod, price, now)) is not None}
    if not found and not known:
        return before
    at_work = [pod for pod in pods if (use := found.get(_name(pod))) is not None and not use.ended]
    running = sum((asked_devices(pod, price.resource) for pod in at_work), Decimal(0))
    left, basis = _left(progress, running)
    paced = left is not None and before is not None and before.expected is None
    if before is not None and known and not paced and not _is_due(before, known, found, now):
        return before
    uses = _bounded(list({**known, **found}.values()))
    used = sum((Decimal(one.device_seconds) for one in uses), Decimal(0))
    return TrainingCost(
        resource=price.resource,
        per_hour=amount_text(price.per_hour),
        currency=prices.currency or None,
        device_hours=amount_text(used / _HOUR),
        amount=amount_text(used / _HOUR * price.per_hour),
        expected=None if left is None else amount_text((used + left) / _HOUR * price.per_hour),
        basis=basis,
        counted_at=to_rfc3339(now),
        pods=uses,
    )


def _is_due(before: TrainingCost, known: Mapping[str, PodUse], found: Mapping[str, PodUse], now: datetime) -> bool:
    """Whether something began or ended, or the last count of what runs is old."""
    if any(name not in known or known[name].ended != one.ended for name, one in found.items()):
        return True
    age = (now - from_rfc3339(before.counted_at)).total_seconds()
    return age >= COUNT_SECONDS and any(not one.ended for one in found.values())


def _left(progress: TrainingProgress | None, running: Decimal) -> tuple[Decimal | None, str]:
    """Return the device-seconds that are left, and what that stands on."""
    if not running:
        return None, "time of the pods on their nodes"
    if progress is None or progress.eta_seconds is None or progress.phase != "Train":
        return None, "time of the pods on their nodes; no pace is measured yet"
    step = "" if progress.step is None else f", measured at step {progress.step} of {progress.max_steps}"
    return progress.eta_seconds * running, f"time of the pods on their nodes, and the time left{step}"


def _use(pod: Mapping[str, Any], price: DevicePrice, now: datetime) -> PodUse | None:
    """Return how long a pod has held its devices; None for one that is on no node."""
    status = pod.get("status") or {}
    placed = next(
        (
            one["lastTransitionTime"]
            for one in status.get("conditions") or []
            if one.get("type") == "PodScheduled" and one.get("status") == "True" and one.get("lastTransitionTime")
        ),
        None,
    )
    devices = asked_devices(pod, price.resource)
    if placed is None or not devices:
        return None
    states = [one.get("state") or {} for one in status.get("containerStatuses") or []]
    ends = [state["terminated"].get("finishedAt") for state in states if state.get("terminated")]
    ended = status.get("phase") in ("Succeeded", "Failed")
    end = max((from_rfc3339(one) for one in ends if one), default=now) if ended else now
    seconds = max(0.0, (end - from_rfc3339(placed)).total_seconds())
    return PodUse(name=_name(pod), device_seconds=amount_text(Decimal(str(seconds)) * devices), ended=ended)


def _bounded(uses: Sequence[PodUse]) -> list[PodUse]:
    """Return as many as the status has room for: the oldest ones that have ended become one."""
    spare = len(uses) - MAX_COUNTED_PODS
    if spare <= 0:
        return list(uses)
    old = [one for one in uses if one.name == EARLIER or one.ended][: spare + 1]
    total = sum((Decimal(one.device_seconds) for one in old), Decimal(0))
    gone = {one.name for one in old}
    kept = [one for one in uses if one.name not in gone]
    return [PodUse(name=EARLIER, device_seconds=amount_text(total), ended=True), *kept][:MAX_COUNTED_PODS]


def _name(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"]["name"])
