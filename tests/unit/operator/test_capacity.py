"""What `Auto` reserves for adapters, and when it restarts engines for it."""

from typing import Any

import pytest
from unit.operator.objects import SETTINGS, digest, model_server
from whetstone_api.capacity import AdapterCapacity
from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.pod_state import DesiredAdapter
from whetstone_operator.controllers.adapters import ResolvedAdapter
from whetstone_operator.controllers.capacity import (
    describe_memory,
    engine_form,
    list_demands,
    running_slots,
    with_slots,
)
from whetstone_operator.controllers.engine_failure import advise
from whetstone_operator.resources.capacity import Demand, Slots, lora_options, read_slots, reserve
from whetstone_operator.resources.modelserver import build_deployment

AUTO = {"maxLoras": "Auto", "maxRank": "Auto"}


def capacity(**fields: Any) -> AdapterCapacity:
    return AdapterCapacity.model_validate({**AUTO, **fields})


def demands(*ranks: int | None) -> list[Demand]:
    return [Demand(name=f"a{number}", rank=rank) for number, rank in enumerate(ranks)]


def slots(loras: int, rank: int) -> Slots:
    return Slots(loras=loras, rank=rank, cpu_loras=64)


@pytest.mark.parametrize(
    ("fields", "ranks", "loras", "rank"),
    [
        ({}, (), 4, 16),
        ({}, (8, None), 6, 16),
        ({}, (33, 64), 6, 64),
        ({}, (40,), 5, 64),
        ({}, (257,), 5, 320),
        ({}, (1000,), 5, 512),
        ({"headroom": {"rank": 1, "loras": 0}}, (8,), 1, 8),
        ({"headroom": {"rank": 1, "loras": 0}}, (), 1, 1),
        ({"headroom": {"rank": 128}}, (8,), 5, 128),
        ({}, (8,) * 63, 64, 16),
        ({"maxCpuLoras": 3}, (8,) * 5, 3, 16),
        ({"maxRank": 32}, (64,), 5, 32),
        ({"maxLoras": 2}, (64,) * 3, 2, 64),
    ],
)
def test_reserved_is_what_the_adapters_need_and_the_headroom(
    fields: dict[str, Any], ranks: tuple[int | None, ...], loras: int, rank: int
) -> None:
    found = reserve(capacity(**fields), demands(*ranks))
    assert (found.loras, found.rank) == (loras, rank)


@pytest.mark.parametrize(
    ("ranks", "running", "expected"),
    [
        ((8,), slots(5, 64), slots(5, 64)),
        ((), slots(9, 64), slots(9, 64)),
        ((8,) * 5, slots(5, 16), slots(5, 16)),
        ((8,) * 6, slots(5, 16), slots(10, 16)),
        ((128,), slots(5, 64), slots(5, 128)),
    ],
)
def test_running_engines_restart_for_more_and_only_where_it_is_needed(
    ranks: tuple[int, ...], running: Slots, expected: Slots
) -> None:
    found = reserve(capacity(), demands(*ranks), running=running)
    assert (found.loras, found.rank) == (expected.loras, expected.rank)


def test_message_tells_what_decides() -> None:
    assert reserve(capacity(), demands(8, 64)).message == (
        "maxRank: adapter a1 has rank 64; maxLoras: adapters 2, headroom 4"
    )
    assert reserve(capacity(), demands(8), running=slots(9, 64)).message == (
        "maxRank: the headroom is 16, kept at 64; maxLoras: adapters 1, headroom 4, kept at 9"
    )
    assert reserve(AdapterCapacity()).message == ""


def test_arguments_tell_what_is_reserved() -> None:
    assert read_slots(lora_options(slots(5, 64))) == slots(5, 64)
    assert read_slots(["--max-loras=many"]) is None


def stored(form: str, *, replicas: int = 1, rank: int = 64) -> dict[str, Any]:
    server = with_slots(model_server(adapterCapacity=AUTO), slots(5, rank))
    deployment = build_deployment(server, SETTINGS, form=form)
    return {**deployment, "status": {"replicas": replicas}}


def test_engines_that_run_are_remembered_until_something_else_restarts_them() -> None:
    server = model_server(adapterCapacity=AUTO)
    form = engine_form(server, SETTINGS)
    assert form == engine_form(with_adapter := model_server(adapterCapacity=AUTO, adapters=[]), SETTINGS), with_adapter
    assert running_slots(stored(form), form=form) == slots(5, 64)
    assert running_slots(stored(form, replicas=0), form=form) is None
    assert running_slots(None, form=form) is None
    for other in (
        model_server(adapterCapacity=AUTO, engine={"dtype": "Float32"}),
        model_server(adapterCapacity={**AUTO, "headroom": {"loras": 5}}),
    ):
        assert running_slots(stored(form), form=engine_form(other, SETTINGS)) is None


def job(name: str, rank: int, *, published: int | None = None, failed: bool = False) -> LoRATrainingJob:
    spec = {
        "baseModel": {"source": {"uri": "pvc://models/base"}},
        "datasets": [{"name": "d", "source": {"uri": "pvc://data/train.jsonl"}}],
        "workspace": {"claimName": "work"},
        "output": {"adapter": {"uri": "pvc://adapters/a"}},
        "lora": {"rank": rank},
    }
    status: dict[str, Any] = {}
    if published:
        status["adapter"] = {"uri": "pvc://adapters/a", "digest": digest("c"), "rank": published, "bytes": 1}
    if failed:
        ended = {"type": "Failed", "status": "True", "reason": "R", "message": "", "lastTransitionTime": ""}
        status["conditions"] = [ended]
    metadata = {"name": name, "namespace": "ns"}
    return LoRATrainingJob.model_validate({"metadata": metadata, "spec": spec, "status": status})


def test_demands_are_of_adapters_served_and_to_come() -> None:
    server = model_server(
        adapters=[
            {"name": "seen", "source": {"uri": "pvc://s/a", "digest": digest("a")}},
            {"name": "unseen", "source": {"uri": "pvc://s/b", "digest": digest("b")}},
            {"name": "tuned", "trainingJobRef": {"name": "train"}},
            {"name": "missing", "trainingJobRef": {"name": "nobody"}},
        ]
    )
    resolved = [
        ResolvedAdapter(name="seen", required=False, digest=digest("a")),
        ResolvedAdapter(name="unseen", required=False, digest=digest("b")),
        ResolvedAdapter(name="tuned", required=False),
        ResolvedAdapter(name="missing", required=False),
        ResolvedAdapter(name="chosen", required=False, digest=digest("c")),
    ]
    jobs = {
        "train": job("train", 64),
        "chosen": job("chosen", 8, published=32),
        "later": job("later", 128),
        "lost": job("lost", 256, failed=True),
    }
    old = DesiredAdapter(name="seen", served_name="seen--d", digest=digest("d"), source="", path="")
    found = list_demands(
        server.spec.adapters or [], jobs, resolved=resolved, held=[old], ranks={digest("a"): 4, digest("d"): 8}
    )
    assert {demand.name: demand.rank for demand in found} == {
        "seen": 4,
        "unseen": None,
        "tuned": 64,
        "missing": None,
        "chosen": 32,
        "later": 128,
        "seen--d": 8,
    }


MEMORY = {"weights": "5.98Gi", "adapters": "0.85Gi", "cachePerRequest": "0.44Gi", "work": "2.31Gi", "least": "9.58Gi"}
ESTIMATE = (
    "estimated for each accelerator: weights 5.98Gi, adapters 0.85Gi, one request of full length 0.44Gi, work space"
    " 2.31Gi, together 9.58Gi"
)


@pytest.mark.parametrize(
    ("cause", "log", "told"),
    [
        ("OOMKilled", "", True),
        ("Error", "torch.OutOfMemoryError: CUDA out of memory", True),
        ("Error", "the model's max seq len (8192) is larger than the maximum number of tokens", True),
        ("Error", "vllm serve: error: unrecognized arguments: --colour", False),
        ("Error", "KeyError: 'x'", False),
    ],
)
def test_engine_without_memory_is_told_what_takes_it(cause: str, log: str, told: bool) -> None:
    estimate = describe_memory({"capacity": {"memory": MEMORY}})
    advice = advise(container="engine", cause=cause, log=log, estimate=estimate)
    assert (f"({ESTIMATE})" in advice) is told
    assert "estimated" not in advise(container="engine", cause=cause, log=log, estimate=describe_memory({}))
