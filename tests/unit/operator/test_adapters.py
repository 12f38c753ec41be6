"""What a server says of its adapters, from what its pods say."""

from datetime import timedelta
from typing import Any

import pytest
from unit.operator.objects import NOW, digest, model_server
from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.modelserver import AdapterStatus
from whetstone_api.pod_state import AdapterState, BaseState, Effect, PodState, TemplateState
from whetstone_operator.controllers.adapters import (
    PodView,
    ResolvedAdapter,
    adapter_failures,
    adapter_status,
    resolve_adapter,
    summarize,
)

STORES = [{"name": "adapters", "claimName": "adapters"}]
ADAPTER = ResolvedAdapter(name="tuned", required=False, source="pvc://adapters/a", digest=digest("a"))


def pod(name: str = "p", *, ready: bool = True, base: BaseState | None = None, **adapter: Any) -> PodView:
    states = [AdapterState(name="tuned", served_name="tuned--aaaaaaaa", digest=digest("a"), **adapter)]
    state = PodState(
        revision=1, settled=True, engine_healthy=True, open=True, adapters=states, base=base or BaseState()
    )
    return PodView(name=name, ready=ready, state=state)


GOOD = {"loaded": True, "effect": Effect.VERIFIED}
SILENT = PodView(name="silent", ready=True, state=None)


def conditions(*pods: PodView, adapters: list[ResolvedAdapter] | None = None) -> dict[str, tuple[str, str]]:
    found = summarize([ADAPTER] if adapters is None else adapters, pods)
    return {item.condition: (item.status, item.reason) for item in found}


def training_job(*, adapter: dict[str, Any] | None = None, failed: bool = False) -> LoRATrainingJob:
    status: dict[str, Any] = {}
    if adapter:
        status["adapter"] = adapter
    if failed:
        condition = {"type": "Failed", "status": "True", "reason": "DatasetInvalid", "message": ""}
        status["conditions"] = [{**condition, "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    spec = {
        "baseModel": {"source": {"uri": "pvc://models/base"}},
        "datasets": [{"name": "d", "source": {"uri": "pvc://data/train.jsonl"}}],
        "workspace": {"claimName": "workspace"},
        "output": {"adapter": {"uri": "pvc://adapters/a"}},
    }
    metadata = {"name": "train", "namespace": "ns"}
    return LoRATrainingJob.model_validate({"metadata": metadata, "spec": spec, "status": status})


def resolve(job: LoRATrainingJob | None, recorded: AdapterStatus | None = None) -> ResolvedAdapter:
    server = model_server(adapterStores=STORES, adapters=[{"name": "tuned", "trainingJobRef": {"name": "train"}}])
    assert server.spec.adapters is not None
    return resolve_adapter(server.spec.adapters[0], server=server, job=job, recorded=recorded)


def test_published_adapter_is_resolved_to_its_version() -> None:
    published = {"uri": "pvc://adapters/a", "digest": digest("a"), "rank": 8, "bytes": 1}
    desired = resolve(training_job(adapter=published)).to_desired(required=True)
    assert desired is not None
    assert (desired.served_name, desired.path) == ("tuned--aaaaaaaa", "/mnt/claims/adapters/a")


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (None, "ReferenceNotFound"),
        (training_job(), "NotPublished"),
        (training_job(failed=True), "ReferenceFailed"),
    ],
)
def test_adapter_without_a_version_says_why(job: LoRATrainingJob | None, reason: str) -> None:
    adapter = resolve(job)
    assert adapter.reason == reason
    assert "spec.adapters[tuned].trainingJobRef: LoRATrainingJob train" in adapter.message
    assert adapter.to_desired(required=False) is None


def test_dangling_reference_keeps_the_last_version() -> None:
    recorded = AdapterStatus(name="tuned", digest=digest("a"), source="pvc://adapters/a")
    assert resolve(None, recorded).digest == digest("a")


def test_verified_on_every_replica_is_effective() -> None:
    assert conditions(pod("p1", **GOOD), pod("p2", **GOOD, base=BaseState(status="True"))) == {
        "AdaptersLoaded": ("True", "AllLoaded"),
        "AdapterEffective": ("True", "Verified"),
        "BaseParity": ("Unknown", "NotRecorded"),
        "TemplateParity": ("Unknown", "NotRecorded"),
    }


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"loaded": True, "effect": Effect.CHANGED}, ("Unknown", "Changed")),
        ({"loaded": True, "effect": Effect.UNKNOWN}, ("Unknown", "NotRecorded")),
        ({"loaded": True, "effect": Effect.PENDING}, ("False", "Loading")),
        ({"loaded": True, "effect": Effect.NO_EFFECT, "reason": "NoEffect", "message": "m"}, ("False", "NoEffect")),
        ({"loaded": True, "effect": Effect.DIVERGENT, "reason": "Divergent", "message": "m"}, ("False", "Divergent")),
        ({"loaded": False, "reason": "RankTooHigh", "message": "m"}, ("False", "RankTooHigh")),
    ],
)
def test_one_bad_replica_decides(state: dict[str, Any], expected: tuple[str, str]) -> None:
    assert conditions(pod("p1", **GOOD), pod("p2", **state))["AdapterEffective"] == expected


def test_adapter_that_cannot_be_judged_is_named() -> None:
    unsure = pod("p2", loaded=True, effect=Effect.CHANGED, message="it changes by 2 nats")
    assert (
        summarize([ADAPTER], [pod("p1", **GOOD), unsure])[1].message == "adapter tuned on pod p2: it changes by 2 nats"
    )


def test_silent_sidecar_is_not_taken_for_a_good_one() -> None:
    found = summarize([ADAPTER], [pod(**GOOD), SILENT])
    assert [item.status for item in found[:2]] == ["False", "False"]
    assert found[0].message == "adapter tuned on pod silent is unknown: its sidecar does not answer"


def test_nothing_is_effective_before_a_replica_is_ready() -> None:
    assert conditions(pod(ready=False, **GOOD))["AdapterEffective"] == ("False", "Loading")


def test_server_without_adapters_has_nothing_to_load() -> None:
    assert conditions(pod(), adapters=[])["AdaptersLoaded"] == ("True", "NoAdapters")


def test_wrong_base_is_told_with_its_pod() -> None:
    wrong = pod("p2", **GOOD, base=BaseState(status="False", message="off by 3 nats"))
    assert conditions(pod("p1", **GOOD), wrong)["BaseParity"] == ("False", "Divergent")
    assert summarize([ADAPTER], [pod("p1", **GOOD), wrong])[2].message == "pod p2: off by 3 nats"


def test_template_of_one_pod_that_differs_is_told_with_adapter_and_pod() -> None:
    same, other = TemplateState(status="True"), TemplateState(status="False", message="conversation 1 becomes 9 tokens")
    assert conditions(pod("p1", **GOOD, template=same))["TemplateParity"] == ("True", "Verified")
    told = summarize([ADAPTER], [pod("p1", **GOOD, template=same), pod("p2", **GOOD, template=other)])[3]
    assert (told.status, told.reason) == ("False", "TemplateMismatch")
    assert told.message.startswith("adapter tuned on pod p2: conversation 1 becomes 9 tokens; ")
    unsure = [pod("p1", **GOOD, template=same), pod("p2", **GOOD)]
    assert conditions(*unsure)["TemplateParity"] == ("Unknown", "NotRecorded")


def test_first_effective_moment_is_kept_for_the_same_version() -> None:
    first = adapter_status(ADAPTER, pods=[pod(**GOOD)], recorded=None, now=NOW)
    assert (first.loaded_replicas, first.effective_replicas, first.reason) == (1, 1, None)
    later = adapter_status(ADAPTER, pods=[SILENT], recorded=first, now=NOW + timedelta(hours=1))
    assert later.effective_since == first.effective_since == "2026-01-02T03:04:05.000000Z"
    assert (later.effective_replicas, later.reason) == (0, "Loading")


def test_failures_are_bounded_and_include_pods_that_are_not_ready() -> None:
    bad = {"loaded": False, "reason": "DigestMismatch", "message": "m"}
    pods = [pod(f"p{number:02}", ready=False, **bad) for number in range(20)]
    failures = adapter_failures([ADAPTER], pods)
    assert [failure.pod for failure in failures] == [f"p{number:02}" for number in range(10)]
