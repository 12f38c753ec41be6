"""When an alias moves, and to what."""

import pytest
from unit.operator.objects import digest, finished_run
from whetstone_api.benchmarkrun import BenchmarkRun
from whetstone_api.modelserver import AliasStatus
from whetstone_operator.controllers.aliases import Move, Version, decide_fixed, decide_promotion, gather_evidence

LABELS = {"suite": "shell"}


def version(letter: str, *, effective: bool = True) -> Version:
    return Version(adapter="tuned", served_name=f"tuned--{letter}", digest=digest(letter), effective=effective)


def alias(letter: str | None, *, run: str | None = None, previous: str | None = None) -> AliasStatus:
    return AliasStatus(
        name="assistant",
        adapter="tuned" if letter else "base",
        served_name=f"tuned--{letter}" if letter else "base",
        digest=digest(letter) if letter else None,
        since="2026-01-01T12:30:00Z",
        benchmark_run=run,
        previous=previous,
    )


def decide(
    current: AliasStatus | None, runs: list[BenchmarkRun], *versions: Version, minimum_tasks: int = 1
) -> Move | None:
    return decide_promotion(
        current=current,
        base="base",
        evidence=gather_evidence(runs, server="server", labels=LABELS),
        versions={item.digest: item for item in versions},
        minimum_tasks=minimum_tasks,
    )


def test_new_alias_serves_the_base() -> None:
    move = decide(None, [])
    assert move is not None
    assert (move.served_name, move.digest, move.cause) == ("base", None, "initial")


def test_alias_moves_to_the_version_that_a_run_found_better() -> None:
    move = decide(alias(None), [finished_run("candidate", minute=1)], version("a"))
    assert move is not None
    assert (move.served_name, move.run, move.cause) == ("tuned--a", "candidate", "promotion")


def test_alias_of_a_restored_cluster_is_derived_from_the_runs() -> None:
    move = decide(None, [finished_run("candidate", minute=1)], version("a"))
    assert move is not None
    assert move.served_name == "tuned--a"


@pytest.mark.parametrize(
    "run",
    [
        finished_run("r", minute=1, verdict="Inconclusive"),
        finished_run("r", minute=1, verdict="NotComparable"),
        finished_run("r", minute=1, verdict="Worse"),
        finished_run("r", minute=1, gates="False"),
        finished_run("r", minute=1, gates="Unknown", verdict=None),
        finished_run("r", minute=1, conditions={"Valid": "False"}),
        finished_run("r", minute=1, conditions={"Complete": "False"}),
        finished_run("r", minute=1, labels={"suite": "other"}),
        finished_run("r", minute=1, server="another"),
        finished_run("r", minute=1, measured=None),
        finished_run("r", minute=1, measured="b"),
        finished_run("r", minute=1, tasks=9),
    ],
    ids=[
        "inconclusive",
        "not comparable",
        "worse",
        "gate failed",
        "no gates",
        "not valid",
        "not complete",
        "label",
        "server",
        "base",
        "version not held",
        "few tasks",
    ],
)
def test_run_that_is_no_evidence_moves_nothing(run: BenchmarkRun) -> None:
    assert decide(alias(None), [run], version("a"), minimum_tasks=10) is None


def test_gates_alone_promote_a_run_without_baseline() -> None:
    move = decide(alias(None), [finished_run("r", minute=1, verdict=None)], version("a"))
    assert move is not None
    assert move.served_name == "tuned--a"


def test_version_that_is_not_effective_everywhere_is_not_promoted() -> None:
    assert decide(alias(None), [finished_run("r", minute=1)], version("a", effective=False)) is None


def test_newest_evidence_wins() -> None:
    runs = [finished_run("old", minute=1), finished_run("new", minute=2, measured="b")]
    move = decide(alias(None), runs, version("a"), version("b"))
    assert move is not None
    assert (move.served_name, move.run) == ("tuned--b", "new")


def test_older_evidence_never_moves_an_alias_back() -> None:
    runs = [finished_run("old", minute=1), finished_run("new", minute=2, measured="b")]
    assert decide(alias("b", run="new"), runs, version("a"), version("b")) is None


def test_candidate_that_is_worse_than_what_is_served_is_refused() -> None:
    served = finished_run("served", minute=1)
    better_than_base = finished_run("candidate", minute=2, measured="b")
    worse_than_served = finished_run("duel", minute=3, measured="b", verdict="Worse", baseline="served")
    runs = [served, better_than_base, worse_than_served]
    assert decide(alias("a", run="served"), runs, version("a"), version("b")) is None


def test_later_run_that_finds_the_version_worse_moves_back_to_the_previous_one() -> None:
    runs = [
        finished_run("first", minute=1),
        finished_run("second", minute=2, measured="b"),
        finished_run("check", minute=3, measured="b", verdict="Worse", gates="False"),
    ]
    move = decide(alias("b", run="second", previous="tuned--a"), runs, version("a"), version("b"))
    assert move is not None
    assert (move.served_name, move.run, move.cause) == ("tuned--a", "check", "rollback")


def test_rollback_without_a_previous_version_goes_to_the_base_and_stays_there() -> None:
    runs = [finished_run("first", minute=1), finished_run("check", minute=2, verdict="Worse", gates="False")]
    move = decide(alias("a", run="first", previous="base"), runs, version("a"))
    assert move is not None
    assert (move.served_name, move.run) == ("base", "check")
    assert decide(alias(None, run="check", previous="tuned--a"), runs, version("a")) is None


def test_evidence_that_vanishes_moves_nothing() -> None:
    assert decide(alias("a", run="gone"), [], version("a")) is None
    older = [finished_run("older", minute=1, measured="b")]
    assert decide(alias("a", run="gone"), older, version("a"), version("b")) is None


def test_version_that_pods_no_longer_hold_gives_way_to_the_base() -> None:
    move = decide(alias("a", run="first"), [])
    assert move is not None
    assert (move.served_name, move.cause) == ("base", "removed")


def test_engine_restart_does_not_move_an_alias() -> None:
    runs = [finished_run("first", minute=1)]
    assert decide(alias("a", run="first"), runs, version("a", effective=False)) is None


def test_fixed_alias_waits_for_its_adapter_and_follows_its_version() -> None:
    waiting = decide_fixed(current=None, target="tuned", base="base", versions=[version("a", effective=False)])
    assert waiting is None
    first = decide_fixed(current=None, target="tuned", base="base", versions=[version("a")])
    assert first is not None
    assert first.served_name == "tuned--a"
    assert decide_fixed(current=alias("a"), target="tuned", base="base", versions=[version("a")]) is None
    second = decide_fixed(current=alias("a"), target="tuned", base="base", versions=[version("b"), version("a")])
    assert second is not None
    assert second.served_name == "tuned--b"
    to_base = decide_fixed(current=alias("a"), target="base", base="base", versions=[version("a")])
    assert to_base is not None
    assert to_base.digest is None
