"""Clocks of operators that jump an hour, forward and back: one leads, nothing hangs, and nothing is taken for hung."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from integration.operator_process import SYSTEM_NAMESPACE, OperatorProcess
from integration.world import DATASET, World
from support.machine_clock import MachineClock
from support.waiting import eventually

pytestmark = pytest.mark.integration
KIND = "LoRATrainingJob"


@dataclass(frozen=True)
class Replica:
    """An operator, and what it takes for its machine's clock."""

    process: OperatorProcess
    clock: MachineClock

    def leads(self) -> bool:
        return self.process.metric("whetstone_leader") == 1


@pytest.fixture
def replicas(world: World, operator_kubeconfig: Path, tmp_path: Path) -> Iterator[list[Replica]]:
    """Two replicas of one operator, with clocks that are two hours ahead; the first one leads."""
    found = []
    for name in ("first", "second"):
        clock = MachineClock(tmp_path / f"{name}.time", hours=2)
        process = OperatorProcess(
            kubeconfig=operator_kubeconfig,
            namespace=world.namespace,
            log=tmp_path / f"{name}.log",
            environment=clock.environment,
        )
        found.append(Replica(process, clock))
    try:
        for one in found:
            one.process.start()
        yield found
    finally:
        for one in found:
            one.process.stop()
    for one in found:
        assert "Traceback" not in one.process.log


def lease_of(world: World, replica: Replica) -> dict[str, Any]:
    lease = world.api.get("Lease", replica.process.lease, namespace=SYSTEM_NAMESPACE)
    assert lease is not None
    return lease


def renewed(world: World, replica: Replica) -> dict[str, Any]:
    """Wait until the Lease has been renewed after now, and return it."""
    before = lease_of(world, replica)["metadata"]["resourceVersion"]

    def again() -> dict[str, Any] | None:
        lease = lease_of(world, replica)
        return lease if lease["metadata"]["resourceVersion"] != before else None

    return eventually(again, what="the Lease is renewed")


def test_jumps_of_either_clock_change_nothing(world: World, replicas: list[Replica]) -> None:
    """No other operator leads, no training is taken for hung, and no timer runs an hour longer."""
    first, second = replicas
    world.claims()
    world.train()
    world.end_well(world.wait_job("train", "prepare"), dataset=DATASET)
    job = world.wait_job("train", "train")
    token = world.pod_token(world.run_pod(job))
    name = job["metadata"]["name"]
    eventually(lambda: world.get("Job", name)["status"].get("ready") == 1, what="the Job has a pod that is ready")

    def report(step: int) -> None:
        body = {"phase": "Train", "step": step, "maxSteps": 10, "loss": 1.0}
        assert first.process.report(f"loratrainingjobs/{world.namespace}/train", token=token, body=body) == 202

    def step_told(step: int) -> bool:
        progress = world.get(KIND, "train")["status"].get("progress") or {}
        assert progress.get("step") == step, f"{progress}"
        return True

    report(1)
    eventually(lambda: step_told(1), what="the first step in the status")
    first.clock.set(hours=3)
    looked = first.process.metric("whetstone_reconcile_total")
    note = {"metadata": {"annotations": {"example.com/look": "again"}}}
    world.api.merge(KIND, "train", note, namespace=world.namespace)
    eventually(lambda: first.process.metric("whetstone_reconcile_total") > looked, what="a reconcile")
    first.clock.set(hours=1)
    report(2)
    for replica, hours in ((second, 3), (first, 3), (second, 1), (first, 1)):
        replica.clock.set(hours=hours)
        require_first_leads(world, first, second)
    eventually(lambda: step_told(2), what="the second step in the status", seconds=60)
    assert "stalls" not in world.get(KIND, "train")["status"]
    assert world.wait_job("train", "train")["metadata"]["uid"] == job["metadata"]["uid"]
    assert second.process.metric("whetstone_reconcile_total") == 0


def require_first_leads(world: World, first: Replica, second: Replica) -> None:
    """Check who leads once the Lease has been renewed after now."""
    spec = renewed(world, first)["spec"]
    assert spec["leaseTransitions"] == 0
    # What people read there is the cluster's time all the same.
    off = datetime.now(UTC) - datetime.fromisoformat(spec["renewTime"])
    assert abs(off) < timedelta(minutes=10)
    assert (first.leads(), second.leads()) == (True, False)


@pytest.mark.long
def test_killed_leader_is_followed_in_time_though_the_clock_of_the_other_one_jumps(
    world: World, replicas: list[Replica]
) -> None:
    first, second = replicas
    renewed(world, first)
    first.process.kill()
    killed = time.monotonic()
    second.clock.set(hours=3)
    second.clock.set(hours=1)
    eventually(second.leads, what="the second leads", seconds=60)
    assert 10 < time.monotonic() - killed < 20
    assert lease_of(world, second)["spec"]["leaseTransitions"] == 1
