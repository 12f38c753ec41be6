"""Whose engines an upgrade of the operator restarts, and when."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from unit.operator.objects import SETTINGS, model_server
from whetstone_api.modelserver import ModelServer
from whetstone_api.vocabulary import Annotation, Label
from whetstone_operator.controllers.capacity import with_slots
from whetstone_operator.controllers.engine_upgrade import (
    HOT,
    Origin,
    is_under_way,
    is_upgrade,
    upgrade_waits,
    with_origin,
)
from whetstone_operator.kinds import DEPLOYMENT, MODEL_SERVER, POD, Key
from whetstone_operator.resources.capacity import Slots
from whetstone_operator.resources.modelserver import build_deployment, build_template
from whetstone_operator.runtime.upgrades import Upgrades
from whetstone_operator.settings import Settings

NEWER = replace(SETTINGS, server_image="r/server:2")
SOURCE = {"uri": "pvc://adapters/a"}
A, B, C, D = (Key(MODEL_SERVER.plural, "ns", name) for name in "abcd")


def deployment(server: ModelServer, settings: Settings, *, upgrade: bool = False, form: str | None = None) -> Any:
    """Return the Deployment that an operator makes of a server."""
    made = build_deployment(server, settings, form=form)
    return with_origin(made, Origin.wanted(server, settings, made["spec"]["template"]), upgrade=upgrade)


def serving(made: Any, available: int = 1) -> Any:
    """Return a Deployment as stored, whose pods serve."""
    return {**deepcopy(made), "status": {"availableReplicas": available}}


def upgrades(stored: Any, server: ModelServer, settings: Settings) -> bool:
    wanted = deployment(server, settings)
    origin = Origin.wanted(server, settings, wanted["spec"]["template"])
    return is_upgrade(stored, wanted, origin=origin, server=server)


@pytest.mark.parametrize(
    ("changed", "restarts"),
    [
        ({"server_image": "r/server:2"}, True),
        ({"engine_image": "r/engine:2"}, True),
        ({"image_pull_secrets": ("login",)}, True),
        ({"trainer_image": "r/trainer:2"}, False),
        ({"workers": 3}, False),
    ],
)
def test_what_the_operator_changes_in_pods_is_an_upgrade(changed: Any, restarts: bool) -> None:
    server = model_server()
    assert upgrades(serving(deployment(server, SETTINGS)), server, replace(SETTINGS, **changed)) is restarts


def test_engine_image_of_the_spec_is_not_the_operators() -> None:
    server = model_server(engine={"image": "mine/engine:1"})
    assert not upgrades(serving(deployment(server, SETTINGS)), server, replace(SETTINGS, engine_image="r/engine:2"))


def test_what_serves_nobody_is_restarted_at_once() -> None:
    server = model_server()
    assert not upgrades(serving(deployment(server, SETTINGS), available=0), server, NEWER)


@pytest.mark.parametrize(
    "change", [{"engine": {"maxModelLength": 512}}, {"podTemplate": {"spec": {"nodeSelector": {"a": "b"}}}}]
)
def test_change_by_the_user_takes_the_upgrade_with_it(change: dict[str, Any]) -> None:
    stored = serving(deployment(model_server(), SETTINGS))
    assert upgrades(stored, model_server(), NEWER)
    assert not upgrades(stored, model_server(**change), NEWER)


def test_what_a_reference_changes_under_the_same_operator_is_no_upgrade() -> None:
    server = model_server()
    other = build_deployment(server, SETTINGS, chat_template="another one")
    origin = Origin.wanted(server, SETTINGS, other["spec"]["template"])
    stored = serving(deployment(server, SETTINGS))
    assert not is_upgrade(stored, with_origin(other, origin, upgrade=False), origin=origin, server=server)


@pytest.mark.parametrize(
    "change",
    [
        {"replicas": 3},
        {"adapters": [{"name": "a", "source": SOURCE}], "aliases": [{"name": "x", "targets": [{"adapter": "a"}]}]},
        {"adapterSelector": {"matchLabels": {"a": "b"}}},
        {"apiKeys": [{"name": "k", "secretRef": {"name": "keys", "key": "k"}}]},
        {"limits": {"concurrentRequests": 2}},
        {"model": {**model_server().spec.model.to_wire(), "defaultSampling": {"temperature": "0.5"}}},
    ],
)
def test_hot_change_brings_no_restart_forward(change: dict[str, Any]) -> None:
    assert change.keys() & HOT or "model" in change
    assert upgrades(serving(deployment(model_server(), SETTINGS)), model_server(**change), NEWER)
    templates = [build_template(server, SETTINGS) for server in (model_server(), model_server(**change))]
    assert templates[0] == templates[1]


def test_room_that_adapters_need_is_made_at_once() -> None:
    server = model_server(adapterCapacity={"maxLoras": "Auto", "maxRank": "Auto"})
    small, large = (with_slots(server, Slots(loras=4, rank=rank, cpu_loras=8)) for rank in (16, 32))
    stored = serving(deployment(large, SETTINGS, form="any"))
    made = deployment(small, NEWER, form="other")
    origin = Origin.wanted(server, NEWER, made["spec"]["template"])
    stored["metadata"]["annotations"][Annotation.ENGINE_ORIGIN] = str(replace(origin, by="old", pods="old"))
    assert is_upgrade(stored, made, origin=origin, server=small)
    tight = serving(deployment(small, SETTINGS, form="any"))
    tight["metadata"]["annotations"] = stored["metadata"]["annotations"]
    assert not is_upgrade(tight, made, origin=origin, server=large)


def test_deployment_of_an_operator_that_left_no_mark_is_judged_by_its_pods() -> None:
    server = model_server()
    unmarked = serving(build_deployment(server, SETTINGS))
    assert upgrades(unmarked, server, NEWER)
    assert not upgrades(unmarked, server, SETTINGS)


@pytest.mark.parametrize(
    ("status", "under_way"),
    [
        ({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}, False),
        ({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}, True),
        ({"observedGeneration": 2, "replicas": 3, "updatedReplicas": 2, "availableReplicas": 2}, True),
        ({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 1, "availableReplicas": 2}, True),
        ({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2}, True),
        ({}, True),
    ],
)
def test_turn_lasts_until_all_engines_are_back(status: dict[str, Any], under_way: bool) -> None:
    server = model_server(replicas=2)
    stored = {**deployment(server, NEWER, upgrade=True), "status": status}
    stored["metadata"]["generation"] = 2
    assert is_under_way(stored) is under_way
    assert not is_under_way({**deployment(server, NEWER), "status": {}})


def told(key: Key, *, upgrade: bool, change: str = "MODIFIED") -> dict[str, Any]:
    """Return the event of a server's Deployment."""
    annotations = {str(Annotation.UPGRADE): "x"} if upgrade else {}
    labels = {str(Label.MODEL_SERVER): key.name}
    metadata = {"namespace": key.namespace, "name": f"{key.name}-engine", "labels": labels, "annotations": annotations}
    return {"type": change, "object": {"metadata": metadata}}


def test_one_server_at_a_time_and_who_asked_first_is_woken_first() -> None:
    due: list[Key] = []
    turns = Upgrades(1, due.append)
    assert [turns.take(key) for key in (A, B, C)] == [True, False, False]
    assert turns.take(A)
    assert due == []
    turns.leave(A)
    assert due == [B]
    assert [turns.take(key) for key in (B, C)] == [True, False]


def test_turn_that_watches_tell_of_counts_after_a_restart_of_the_operator() -> None:
    turns = Upgrades(2, lambda key: None)
    turns.heard(DEPLOYMENT, told(A, upgrade=True))
    turns.heard(POD, told(D, upgrade=True))
    assert [turns.take(key) for key in (B, C)] == [True, False]
    assert turns.under_way == [A, B]
    assert turns.take(A)


@pytest.mark.parametrize(
    "end", [told(A, upgrade=False), told(A, upgrade=True, change="DELETED")], ids=["through", "deleted"]
)
def test_turn_ends_with_its_annotation_or_its_deployment(end: dict[str, Any]) -> None:
    due: list[Key] = []
    turns = Upgrades(1, due.append)
    turns.heard(DEPLOYMENT, told(A, upgrade=True))
    assert not turns.take(B)
    turns.heard(DEPLOYMENT, end)
    assert due == [B]
    assert turns.take(B)


def test_event_from_before_an_apply_does_not_end_the_turn() -> None:
    turns = Upgrades(1, lambda key: None)
    assert turns.take(A)
    turns.heard(DEPLOYMENT, told(A, upgrade=False))
    assert not turns.take(B)


def test_who_waits_and_goes_keeps_nobody_back() -> None:
    due: list[Key] = []
    turns = Upgrades(1, due.append)
    assert [turns.take(key) for key in (A, B, C)] == [True, False, False]
    turns.leave(A)
    turns.leave(B)
    assert due[-1] == C
    assert turns.take(C)


def test_with_none_at_a_time_all_wait_and_are_told_for_what() -> None:
    turns = Upgrades(0, lambda key: None)
    assert not turns.take(A)
    turns.leave(A)
    assert "engineUpgrades is 0" in upgrade_waits([], limit=0).message
    assert "ModelServer ns/a, ns/b is ready" in upgrade_waits([A, B], limit=2).message


def test_who_waits_is_woken_when_it_is_anothers_turn_and_names_that_one() -> None:
    due: list[Key] = []
    turns = Upgrades(1, due.append)
    assert [turns.take(key) for key in (A, B, C, D)] == [True, False, False, False]
    assert turns.before(D) == [A]
    turns.leave(A)
    assert turns.take(B)
    assert due == [B, C, D]
    assert turns.before(D) == [B]
    due.clear()
    turns.leave(B)
    assert turns.take(C)
    assert due == [C, D]
    assert turns.before(D) == [C]


def test_who_waits_is_woken_once_for_each_turn() -> None:
    due: list[Key] = []
    turns = Upgrades(1, due.append)
    turns.heard(DEPLOYMENT, told(A, upgrade=True))
    assert not turns.take(B)
    for _ in range(3):
        turns.heard(DEPLOYMENT, told(A, upgrade=True))
        turns.leave(D)
        assert not turns.take(B)
    assert due == []


def test_who_is_far_from_its_turn_is_not_woken_for_those_of_others() -> None:
    due: list[Key] = []
    turns = Upgrades(1, due.append)
    line = [Key(MODEL_SERVER.plural, "ns", f"s{number:02}") for number in range(30)]
    for key in line:
        turns.take(key)
    assert turns.before(line[20]) == [line[0]]
    assert turns.before(line[21]) is None
    turns.leave(line[0])
    assert turns.take(line[1])
    assert due == line[1:22]
    assert turns.before(line[21]) == [line[1]]
    assert turns.before(line[22]) is None
    assert "until many ModelServers are ready" in upgrade_waits(None, limit=1).message
