"""Two operators against a real API server: one works, and the other takes over."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.operator_process import SYSTEM_NAMESPACE, OperatorProcess
from integration.world import DATASET, World
from support.waiting import eventually

pytestmark = pytest.mark.integration
KIND = "LoRATrainingJob"


@pytest.fixture
def replicas(world: World, operator_kubeconfig: Path, tmp_path: Path) -> Iterator[list[OperatorProcess]]:
    """Two replicas of one operator; the first one leads."""
    both = [
        OperatorProcess(kubeconfig=operator_kubeconfig, namespace=world.namespace, log=tmp_path / f"{name}.log")
        for name in ("first", "second")
    ]
    try:
        for one in both:
            one.start()
        yield both
    finally:
        for one in both:
            one.stop()
    for name in ("first", "second"):
        assert "Traceback" not in (tmp_path / f"{name}.log").read_text()


def leads(one: OperatorProcess) -> bool:
    return one.metric("whetstone_leader") == 1


def test_one_works_and_a_report_that_reaches_the_other_is_handed_on(
    world: World, replicas: list[OperatorProcess]
) -> None:
    first, second = replicas
    assert (leads(first), leads(second)) == (True, False)
    world.claims()
    world.train()
    pod = eventually(lambda: world.pods(world.wait_job("train", "prepare")), what="a pod")[0]
    path, token = f"loratrainingjobs/{world.namespace}/train", world.pod_token(pod)
    assert second.report(path, token=token, body={"phase": "Prepare", "step": 3, "maxSteps": 9}) == 202
    progress = eventually(lambda: world.get(KIND, "train")["status"].get("progress"), what="progress")
    assert progress["step"] == 3
    assert second.report(path, token="somebody", body={"phase": "Prepare"}) == 401
    assert second.metric("whetstone_reconcile_total") == 0


def test_killed_leader_is_followed_within_twenty_seconds_and_nothing_is_done_twice(
    world: World, replicas: list[OperatorProcess]
) -> None:
    first, second = replicas
    world.claims()
    world.train()
    prepare = world.wait_job("train", "prepare")
    first.kill()
    killed = time.monotonic()
    world.train("other", output={"adapter": {"uri": "pvc://adapters/other"}})
    world.end_well(prepare, dataset=DATASET)
    eventually(lambda: leads(second), what="the second leads", seconds=60)
    assert time.monotonic() - killed < 20
    world.wait_job("train", "train")
    world.wait_job("other", "prepare")
    jobs = world.api.list("Job", namespace=world.namespace)
    assert sorted(one["metadata"]["name"].rpartition("-")[0] for one in jobs) == [
        "other-prepare",
        "train-prepare",
        "train-train",
    ]


def test_leader_that_is_told_to_stop_hands_over_in_three_seconds(world: World, replicas: list[OperatorProcess]) -> None:
    first, second = replicas
    began = time.monotonic()
    assert first.stop() == 0
    assert time.monotonic() - began < 3
    eventually(lambda: leads(second), what="the second leads")
    assert time.monotonic() - began < 6
    world.claims()
    world.train()
    world.wait_job("train", "prepare")


def test_leader_that_finds_another_holder_stops_with_an_error(world: World, replicas: list[OperatorProcess]) -> None:
    first, second = replicas
    lease = world.api.get("Lease", first.lease, namespace=SYSTEM_NAMESPACE)
    assert lease is not None
    world.api.merge("Lease", first.lease, {"spec": {"holderIdentity": "a stranger"}}, namespace=SYSTEM_NAMESPACE)
    assert first.wait_end() == 1
    eventually(lambda: leads(second), what="the second leads", seconds=60)


def test_operator_that_stands_by_stops_at_once(replicas: list[OperatorProcess]) -> None:
    began = time.monotonic()
    assert replicas[1].stop() == 0
    assert time.monotonic() - began < 3
    assert leads(replicas[0])
