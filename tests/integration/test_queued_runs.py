"""Benchmark runs in a queue: the queue starts and stops them, and only what runs holds the server.

No Kueue is there: the tests start and stop the Job as it does. What the real one makes of it is in `test_kueue`.
"""

from typing import Any

import pytest
from integration.operator_process import OperatorProcess
from integration.turns import turn, wait_turn
from integration.world import RESULTS, World
from support.waiting import eventually

pytestmark = pytest.mark.integration
KIND = "BenchmarkRun"
QUEUE = "kueue.x-k8s.io/queue-name"


def queued(world: World, name: str = "run", **fields: Any) -> str:
    """Create a run in a queue; return the name of its Job."""
    world.benchmark(name, queueName="team", **fields)
    return str(world.wait_job(name, "run")["metadata"]["name"])


def let(world: World, job: str, *, wait: bool) -> None:
    """Start or stop a Job as the queue does."""
    world.api.merge("Job", job, {"spec": {"suspend": wait}}, namespace=world.namespace)


def change(world: World, name: str, **fields: Any) -> None:
    world.api.merge(KIND, name, {"spec": fields}, namespace=world.namespace)


def held(world: World) -> dict[str, Any] | None:
    return world.condition("ModelServer", "server", "Held")


def test_run_waits_in_its_queue_without_holding_the_server(serving: World) -> None:
    job = queued(serving, shards=2)
    found = serving.get("Job", job)
    assert (found["spec"]["suspend"], found["metadata"]["labels"][QUEUE]) == (True, "team")
    assert QUEUE not in found["spec"]["template"]["metadata"]["labels"]
    serving.wait_reason(KIND, "run", "Queued", condition="QuotaReserved")
    serving.wait_reason(KIND, "run", "Queued")
    assert held(serving) is None
    assert serving.get("Job", job)["spec"]["suspend"] is True
    let(serving, job, wait=False)
    assert serving.wait_reason(KIND, "run", "Admitted", condition="QuotaReserved")["status"] == "True"
    eventually(lambda: held(serving), what="the server is held")
    eventually(lambda: len(serving.pods(serving.get("Job", job))) == 2, what="both shards")
    let(serving, job, wait=True)
    told = serving.wait_reason(KIND, "run", "Preempted", condition="QuotaReserved")
    assert (told["status"], "keeps its finished trials" in told["message"]) == ("False", True)
    eventually(lambda: held(serving) is None, what="the server is free")
    let(serving, job, wait=False)
    for _ in range(2):
        serving.end_well(serving.get("Job", job), results=RESULTS)
    serving.wait_reason(KIND, "run", "Succeeded", condition="Complete")
    assert serving.condition(KIND, "run", "QuotaReserved") is None


def test_waiting_run_keeps_its_place_though_another_one_measures_the_server(serving: World) -> None:
    waiting = queued(serving, "waiting")
    serving.wait_reason(KIND, "waiting", "Queued")
    serving.benchmark("other")
    other = serving.wait_job("other", "run")
    eventually(lambda: "other (measures" in (held(serving) or {"message": ""})["message"], what="the other one holds")
    change(serving, "waiting", activeDeadlineSeconds=5000)
    eventually(
        lambda: serving.get("Job", waiting)["spec"].get("activeDeadlineSeconds") == 5000, what="another reconcile"
    )
    serving.wait_reason(KIND, "waiting", "Queued")
    serving.end_well(other, results=RESULTS)
    serving.wait_reason(KIND, "other", "Succeeded", condition="Complete")
    assert serving.get("Job", waiting)["spec"]["suspend"] is True


def test_suspended_run_leaves_its_queue_and_only_the_queue_starts_it_again(serving: World) -> None:
    job = queued(serving)
    let(serving, job, wait=False)
    serving.wait_reason(KIND, "run", "Admitted", condition="QuotaReserved")
    change(serving, "run", suspend=True)
    serving.wait_reason(KIND, "run", "Suspended", condition="QuotaReserved")
    serving.wait_reason(KIND, "run", "Suspended", condition="Suspended")
    eventually(lambda: serving.get("Job", job)["spec"]["suspend"], what="the Job is suspended")
    eventually(lambda: held(serving) is None, what="the server is free")
    change(serving, "run", suspend=False)
    serving.wait_reason(KIND, "run", "Queued", condition="QuotaReserved")
    assert serving.get("Job", job)["spec"]["suspend"] is True
    let(serving, job, wait=False)
    serving.end_well(serving.get("Job", job), results=RESULTS)
    serving.wait_reason(KIND, "run", "Succeeded", condition="Complete")


def test_of_two_runs_that_the_queue_admits_at_once_one_measures_the_server(
    serving: World, operator: OperatorProcess
) -> None:
    jobs = {name: queued(serving, name, shards=2) for name in ("first", "second")}
    for job in jobs.values():
        let(serving, job, wait=False)
    wait_turn(serving, operator, "first", jobs["first"])
    assert turn(serving, operator, "second", jobs["second"]) == {"granted": False, "heldBy": ["first"]}
    assert turn(serving, operator, "first", jobs["first"])["granted"], "another shard of it"
    told = serving.wait_reason(KIND, "second", "ServerHeld")
    assert "held by BenchmarkRun first" in told["message"]
    assert "its pods wait" in told["message"]
    assert serving.condition(KIND, "second", "QuotaReserved")["reason"] == "Admitted"

    def both_are_named() -> bool:
        told = (held(serving) or {"message": ""})["message"]
        return "first (measures base" in told and "second (waits to measure base" in told

    eventually(both_are_named, what="the server names the one that measures and the one that waits")
    assert serving.get("Job", jobs["second"])["spec"]["suspend"] is False
    for _ in range(2):
        serving.end_well(serving.get("Job", jobs["first"]), results=RESULTS)
    serving.wait_reason(KIND, "first", "Succeeded", condition="Complete")
    wait_turn(serving, operator, "second", jobs["second"])
    serving.wait_reason(KIND, "second", "Running")


def test_admitted_run_waits_for_one_outside_of_queues_and_the_next_one_for_it(
    serving: World, operator: OperatorProcess
) -> None:
    inside = queued(serving, "inside")
    serving.benchmark("outside")
    outside = serving.wait_job("outside", "run")
    let(serving, inside, wait=False)
    eventually(lambda: turn(serving, operator, "inside", inside)["heldBy"] == ["outside"], what="it waits")
    serving.benchmark("next")
    serving.wait_reason(KIND, "next", "ServerHeld")
    serving.end_well(outside, results=RESULTS)
    wait_turn(serving, operator, "inside", inside)
    assert serving.jobs("next", kind="benchmark-run") == []
    serving.end_well(serving.get("Job", inside), results=RESULTS)
    serving.wait_job("next", "run")


def test_run_that_its_queue_stops_loses_its_turn_to_another_and_asks_anew(
    serving: World, operator: OperatorProcess
) -> None:
    jobs = {name: queued(serving, name) for name in ("first", "second")}
    for job in jobs.values():
        let(serving, job, wait=False)
    wait_turn(serving, operator, "first", jobs["first"])
    let(serving, jobs["first"], wait=True)
    wait_turn(serving, operator, "second", jobs["second"])
    # It may go on within the second in which it began, and would be told from its earlier start by nothing else.
    assert serving.get("Job", jobs["first"])["metadata"]["annotations"]["whetstone.dev/turn"] == ""
    let(serving, jobs["first"], wait=False)
    eventually(lambda: turn(serving, operator, "first", jobs["first"])["heldBy"] == ["second"], what="it waits")


def test_queued_runs_that_share_the_server_measure_it_together(serving: World, operator: OperatorProcess) -> None:
    target = {"modelServerRef": {"name": "server"}, "shared": True}
    jobs = {name: queued(serving, name, target=target) for name in ("first", "second")}
    for name, job in jobs.items():
        let(serving, job, wait=False)
        wait_turn(serving, operator, name, job)
