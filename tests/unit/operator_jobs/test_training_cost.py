"""What a training costs, from its pods and the administrator's price table."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from whetstone_api.training_cost import MAX_COUNTED_PODS, TrainingCost
from whetstone_api.training_plan import EstimatedCost, MemoryEstimate
from whetstone_api.training_result import TrainingProgress
from whetstone_operator.controllers.training_cost import EARLIER, estimated_cost, training_cost
from whetstone_operator.prices import Prices, asked_devices, read_prices
from whetstone_operator.runtime.clock import to_rfc3339
from whetstone_operator.settings import Settings, SettingsError

GPU = "nvidia.com/gpu"
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
H100 = {"resource": GPU, "perHour": "4", "nodeSelector": {"gpu": "h100"}}
ANY = {"resource": GPU, "perHour": "1.5"}
PRICES = Prices.model_validate({"currency": "EUR", "devices": [H100, ANY]})


def after(minutes: float) -> datetime:
    return BEGAN + timedelta(minutes=minutes)


def pod(
    name: str = "p", *, gpus: int = 2, placed: float | None = 0, ended: float | None = None, gpu: str = "h100"
) -> dict[str, Any]:
    """A pod that was placed, and has ended, so many minutes after the beginning."""
    status: dict[str, Any] = {"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "False"}]}
    if placed is not None:
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": to_rfc3339(after(placed))}
        status["conditions"] = [scheduled]
    if ended is not None:
        done = {"state": {"terminated": {"finishedAt": to_rfc3339(after(ended))}}}
        status = {**status, "phase": "Failed", "containerStatuses": [done, {"state": {}}]}
    container = {"name": "main", "resources": {"limits": {GPU: str(gpus)}, "requests": {"cpu": "500m"}}}
    spec = {"nodeSelector": {"gpu": gpu}, "containers": [container, {"name": "beside"}]}
    return {"metadata": {"name": name}, "spec": spec, "status": status}


def cost(
    *pods: dict[str, Any],
    before: TrainingCost | None = None,
    at: float = 60,
    prices: Prices = PRICES,
    progress: dict[str, Any] | None = None,
) -> TrainingCost | None:
    told = None if progress is None else TrainingProgress.model_validate(progress)
    return training_cost(before, pods, prices, progress=told, now=after(at))


def known(*pods: dict[str, Any], **more: Any) -> TrainingCost:
    found = cost(*pods, **more)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("gpu", "amount", "per_hour"),
    [("h100", "8", "4"), ("l4", "3", "1.5")],
)
def test_the_first_price_that_fits_the_pod_counts(gpu: str, amount: str, per_hour: str) -> None:
    found = known(pod(gpu=gpu))
    assert (found.resource, found.per_hour, found.currency) == (GPU, per_hour, "EUR")
    assert (found.device_hours, found.amount) == ("2", amount)


def test_what_the_table_does_not_name_has_no_cost() -> None:
    other = Prices.model_validate({"devices": [{"resource": "amd.com/gpu", "perHour": "1"}, H100]})
    assert cost(pod(gpu="l4"), prices=other) is None
    assert cost(pod(placed=None)) is None
    assert cost() is None
    cpu = Prices.model_validate({"devices": [{"resource": "cpu", "perHour": "1"}]})
    assert known(pod(), prices=cpu).amount == "0.5"


def test_attempts_that_have_ended_count_and_those_that_are_gone_are_not_forgotten() -> None:
    first = known(pod("a", ended=30), pod("b", placed=45))
    assert (first.device_hours, first.amount) == ("1.5", "6")
    later = known(pod("b", placed=45, ended=75), before=first, at=90)
    assert (later.device_hours, later.amount) == ("2", "8")
    assert cost(before=later, at=200) == later


def test_pods_at_rest_write_no_status_and_running_ones_once_a_minute() -> None:
    first = known(pod())
    assert cost(pod(), before=first, at=60.9) is first
    assert known(pod(), before=first, at=61).device_hours == "2.0333"
    ended = known(pod(ended=60), before=first, at=60.5)
    assert ended.device_hours == "2"
    assert cost(pod(ended=60), before=ended, at=500) is ended
    assert known(pod(ended=60), pod("b", placed=60), before=ended, at=60.6).pods[1].name == "b"


def test_the_whole_is_told_only_from_a_measured_pace() -> None:
    assert known(pod()).expected is None
    assert known(pod()).basis == "time of the pods on their nodes; no pace is measured yet"
    merging = {"phase": "Publish", "etaSeconds": 3600}
    assert known(pod(), progress=merging).expected is None
    pace = {"phase": "Train", "etaSeconds": 3600, "step": 40, "maxSteps": 80}
    told = known(pod(), progress=pace)
    assert (told.expected, told.basis) == (
        "16",
        "time of the pods on their nodes, and the time left, measured at step 40 of 80",
    )
    before = known(pod())
    assert known(pod(), before=before, at=60.1, progress=pace).expected is not None
    ended = known(pod(ended=60), progress=pace)
    assert (ended.expected, ended.basis) == (None, "time of the pods on their nodes")


def test_of_many_pods_the_oldest_become_one() -> None:
    many = [pod(f"p{number}", ended=30) for number in range(MAX_COUNTED_PODS)]
    full = known(*many)
    assert len(full.pods) == MAX_COUNTED_PODS
    one_more = known(pod("last", placed=30), before=full, at=90)
    assert len(one_more.pods) == MAX_COUNTED_PODS
    assert one_more.pods[0].name == EARLIER
    assert Decimal(one_more.device_hours) == MAX_COUNTED_PODS + 2
    again = known(pod("last", placed=30), pod("other", placed=60), before=one_more, at=90)
    assert len(again.pods) == MAX_COUNTED_PODS
    assert Decimal(again.device_hours) == MAX_COUNTED_PODS + 3


ESTIMATE = {"memory": "9Gi", "least": "7Gi", "plan": "micro-batch 4", "basis": []}
MEASURED = {**H100, "teraflops": "250"}


def before_it_begins(
    device: dict[str, Any] = MEASURED, *, pods: int | None = None, gpu: str = "h100", **found: Any
) -> EstimatedCost | None:
    job: dict[str, Any] = {"spec": {"template": {"spec": pod(gpu=gpu)["spec"]}}}
    if pods is not None:
        job["spec"]["completions"] = pods
    prices = Prices.model_validate({"currency": "EUR", "devices": [device]})
    return estimated_cost(MemoryEstimate.model_validate({**ESTIMATE, **found}), job, prices)


def test_before_it_begins_a_training_tells_what_its_operations_cost() -> None:
    found = before_it_begins(tokens=1000, operations="9e+17")
    assert found is not None
    assert (found.resource, found.per_hour, found.currency, found.devices) == (GPU, "4", "EUR", "2")
    # 9e17 operations at 2.5e14 a second are an hour of one device, however many share it.
    assert (found.device_hours, found.amount) == ("1", "4")
    assert found.basis == (
        "9e+17 operations for 1000 tokens, at 250 teraflops a device as the price table says; the steps alone,"
        " without start, evaluation and publishing"
    )
    several = before_it_begins(pods=3, tokens=1000, operations="9e+17")
    assert several is not None
    assert (several.devices, several.amount) == ("6", "4")


@pytest.mark.parametrize(
    ("device", "found", "basis"),
    [
        (H100, {"operations": "9e+17"}, "unknown: the price table says no teraflops for nvidia.com/gpu"),
        (MEASURED, {}, "unknown: the base model's shape does not tell how many operations a step takes"),
    ],
)
def test_a_cost_that_nobody_can_tell_is_unknown(device: dict[str, Any], found: dict[str, Any], basis: str) -> None:
    told = before_it_begins(device, **found)
    assert told is not None
    assert (told.device_hours, told.amount, told.basis) == (None, None, basis)
    assert before_it_begins(device, gpu="l4", **found) is None


def test_requests_go_before_limits() -> None:
    asked = {"limits": {"cpu": "4"}, "requests": {"cpu": "1500m"}}
    assert asked_devices({"spec": {"containers": [{"resources": asked}]}}, "cpu") == Decimal("1.5")


IMAGES = {f"WHETSTONE_{name}_IMAGE": "r/i:1" for name in ("SERVER", "TRAINER", "BENCHMARK")}


def test_the_operator_reads_its_table_once_and_refuses_a_wrong_one() -> None:
    text = json.dumps({"currency": "EUR", "devices": [H100, ANY]})
    assert Settings.from_environment({**IMAGES, "WHETSTONE_PRICES": text}).prices == PRICES
    assert Settings.from_environment(IMAGES).prices == read_prices("") == Prices()
    for wrong, words in (
        ("{", "no JSON"),
        ('{"devices": [{"resource": "cpu", "perHour": "-1"}]}', "devices.0.perHour"),
        ('{"devices": [{"resource": "cpu", "perHour": "nan"}]}', "devices.0.perHour"),
        ('{"devices": [{"resource": "cpu", "perHour": "1", "teraflops": "0"}]}', "devices.0.teraflops"),
        ('{"devices": [{"resource": "cpu", "price": "1"}]}', "devices.0"),
    ):
        with pytest.raises(SettingsError, match=f"WHETSTONE_PRICES: {words}"):
            Settings.from_environment({**IMAGES, "WHETSTONE_PRICES": wrong})
