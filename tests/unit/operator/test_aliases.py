"""When an alias moves, and to what."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from unit.operator.objects import NOW, digest, finished_run
from whetstone_api.aliases import AliasMove, AliasStatus, AliasTarget, PromotionSpec
from whetstone_api.benchmarkrun import BenchmarkRun
from whetstone_api.pod_state import DesiredAdapter
from whetstone_api.vocabulary import AliasMoveReason
from whetstone_operator.controllers.adapters import ResolvedAdapter
from whetstone_operator.controllers.alias_routes import moved_status, route_aliases, wanted_adapters
from whetstone_operator.controllers.aliases import Move, Version, decide_fixed, decide_promotion, gather_evidence

LABELS = {"suite": "shell"}


def version(letter: str, *, effective: bool = True) -> Version:
    return Version(adapter="tuned", served_name=f"tuned--{letter}", digest=digest(letter), effective=effective)


def alias(
    letter: str | None, *, run: str | None = None, previous: str | None = None, reason: str | None = None
) -> AliasStatus:
    name = f"tuned--{letter}" if letter else "base"
    history = [AliasMove(time="2026-01-01T12:30:00Z", reason=reason, served_name=name)] if reason else None
    return AliasStatus(
        name="assistant",
        adapter="tuned" if letter else "base",
        served_name=f"tuned--{letter}" if letter else "base",
        digest=digest(letter) if letter else None,
        since="2026-01-01T12:30:00Z",
        benchmark_run=run,
        previous=previous,
        history=history,
    )


def decide(current: AliasStatus | None, runs: list[BenchmarkRun], *versions: Version, **pins: Any) -> Move | None:
    promotion = PromotionSpec.model_validate({"benchmarkSelector": {"matchLabels": LABELS}, **pins})
    return decide_promotion(
        current=current,
        base="base",
        evidence=gather_evidence(runs, server="server", promotion=promotion),
        versions={item.digest: item for item in versions},
    )


def test_new_alias_serves_the_base() -> None:
    move = decide(None, [])
    assert move is not None
    assert (move.served_name, move.digest, move.cause) == ("base", None, "Initial")


def test_alias_moves_to_the_version_that_a_run_found_better() -> None:
    move = decide(alias(None), [finished_run("candidate", minute=1)], version("a"))
    assert move is not None
    assert (move.served_name, move.run, move.cause) == ("tuned--a", "candidate", "Promotion")


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
    assert decide(alias(None), [run], version("a"), minimumTasks=10) is None


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
    assert (move.served_name, move.run, move.cause) == ("tuned--a", "check", "Rollback")


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
    assert (move.served_name, move.cause) == ("base", "Removed")


def test_engine_restart_does_not_move_an_alias() -> None:
    runs = [finished_run("first", minute=1)]
    assert decide(alias("a", run="first"), runs, version("a", effective=False)) is None


def test_pinned_suite_is_the_only_evidence() -> None:
    run = finished_run("r", minute=1, suite="6")
    assert decide(alias(None), [run], version("a"), suiteDigest=digest("5")) is None
    assert decide(alias(None), [run], version("a"), suiteDigest=digest("6")) is not None
    worse = finished_run("worse", minute=2, verdict="Worse", gates="False", suite="5")
    assert decide(alias("a", run="r"), [run, worse], version("a"), suiteDigest=digest("6")) is None
    assert decide(alias("a", run="r"), [run, worse], version("a"), suiteDigest=digest("5")) is not None


def test_pinned_gates_are_asked_besides_the_runs_own() -> None:
    low, high = [{"metric": "Mean", "minimum": "0.5"}], [{"metric": "Mean", "minimum": "0.51"}]
    gated, free = finished_run("r", minute=1), finished_run("r", minute=1, gates="Unknown")
    failed = finished_run("r", minute=1, gates="False")
    promoted = [
        [decide(alias(None), [run], version("a"), gates=gates) is not None for gates in (low, high)]
        for run in (gated, free, failed)
    ]
    assert promoted == [[True, False], [True, False], [False, False]]


def test_candidate_is_refused_when_a_run_of_the_served_version_beat_it() -> None:
    candidate = finished_run("candidate", minute=2, measured="b")
    duel = finished_run("duel", minute=3, verdict="Better", baseline="candidate")
    runs = [finished_run("served", minute=1), candidate, duel]
    assert decide(alias("a", run="served"), runs, version("a"), version("b")) is None
    again = finished_run("again", minute=4, measured="b", baseline="duel")
    assert decide(alias("a", run="served"), [*runs, again], version("a"), version("b")) is not None


def test_baseline_that_vanishes_lets_no_worse_version_pass() -> None:
    runs = [
        finished_run("base", minute=0, measured=None, verdict=None),
        finished_run("served", minute=1),
        finished_run("duel", minute=3, measured="b", verdict="Worse", gates="False", baseline="again"),
        finished_run("candidate", minute=4, measured="b", baseline="base"),
    ]
    again = finished_run("again", minute=2)
    for known in ([*runs, again], runs):
        assert decide(alias("a", run="served"), known, version("a"), version("b")) is None


def test_alias_whose_targets_are_taken_away_is_decided_anew() -> None:
    run = finished_run("first", minute=1)
    unpinned = decide(alias("b", reason="Spec"), [run], version("a"), version("b"))
    assert unpinned is not None
    assert (unpinned.served_name, unpinned.run, unpinned.cause) == ("tuned--a", "first", "Promotion")
    same = decide(alias("a", reason="Spec"), [run], version("a"))
    assert same is not None
    assert (same.served_name, same.run, same.cause) == ("tuned--a", "first", "Promotion")
    without = decide(alias("a", reason="Spec"), [], version("a"))
    assert without is not None
    assert (without.served_name, without.cause) == ("base", "Initial")
    worse = finished_run("worse", minute=2, verdict="Worse", gates="False")
    beaten = decide(alias("a", reason="Spec"), [run, worse], version("a"))
    assert beaten is not None
    assert beaten.served_name == "base"


def test_history_holds_the_last_ten_moves_the_latest_first() -> None:
    status = None
    for number in range(12):
        letter = "ab"[number % 2]
        move = Move(
            adapter="tuned",
            served_name=f"tuned--{letter}",
            digest=digest(letter),
            run=f"r{number}",
            cause=AliasMoveReason.PROMOTION,
        )
        status = moved_status("assistant", before=status, move=move, now=NOW + timedelta(minutes=number))
    assert status is not None
    assert status.history is not None
    assert [one.benchmark_run for one in status.history] == [f"r{number}" for number in range(11, 1, -1)]
    assert status.history[0] == AliasMove(
        time=status.since, reason="Promotion", served_name="tuned--b", digest=digest("b"), benchmark_run="r11"
    )
    assert (status.served_name, status.previous) == ("tuned--b", "tuned--a")
    same = moved_status("assistant", before=status, move=replace(move, run="again"), now=NOW)
    assert same.previous == "tuned--a"


def test_previous_version_of_a_promotion_stays_at_hand() -> None:
    held = [
        DesiredAdapter(name="tuned", served_name=f"tuned--{letter}", digest=digest(letter), source="", path="/")
        for letter in "abc"
    ]
    for reason, kept in (
        ("Promotion", [("tuned--a", False), ("tuned--b", True)]),
        ("Rollback", [("tuned--b", True)]),
        ("Spec", [("tuned--b", True)]),
    ):
        routes = route_aliases([alias("b", previous="tuned--a", reason=reason)], names={"assistant"})
        wanted = wanted_adapters([ResolvedAdapter(name="tuned", required=False)], held=held, routes=routes)
        assert [(one.served_name, one.required) for one in wanted] == kept


def fixed(current: AliasStatus | None, weights: dict[str, int], *versions: Version) -> Move | None:
    targets = [AliasTarget(adapter=name, weight=weight) for name, weight in weights.items()]
    return decide_fixed(current=current, targets=targets, base="base", versions=versions)


def test_fixed_alias_waits_for_its_adapter_and_follows_its_version() -> None:
    only = {"tuned": 1}
    assert fixed(None, only, version("a", effective=False)) is None
    first = fixed(None, only, version("a"))
    assert first is not None
    assert (first.served_name, first.targets) == ("tuned--a", ())
    assert fixed(alias("a"), only, version("a")) is None
    second = fixed(alias("a"), only, version("b"), version("a"))
    assert second is not None
    assert second.served_name == "tuned--b"
    to_base = fixed(alias("a"), {"base": 1}, version("a"))
    assert to_base is not None
    assert to_base.digest is None


def test_alias_with_several_targets_moves_once_all_that_get_requests_are_effective() -> None:
    other = Version(adapter="other", served_name="other--b", digest=digest("b"), effective=False)
    weights = {"base": 20, "tuned": 50, "other": 30}
    assert fixed(alias(None), weights, version("a"), other) is None
    assert fixed(alias(None), weights, version("a")) is None
    move = fixed(alias(None), weights, version("a"), replace(other, effective=True))
    assert move is not None
    assert [(one.served_name, one.digest, one.weight) for one in move.targets] == [
        ("base", None, 20),
        ("tuned--a", digest("a"), 50),
        ("other--b", digest("b"), 30),
    ]
    assert (move.adapter, move.served_name, move.digest) == ("tuned", "tuned--a", digest("a"))
    assert move.describe() == "base (weight 20), tuned--a (weight 50), other--b (weight 30)"
    without = fixed(alias(None), {**weights, "other": 0}, version("a"))
    assert without is not None
    assert [one.served_name for one in without.targets] == ["base", "tuned--a"]


def test_alias_with_several_targets_rests_until_a_weight_or_version_changes() -> None:
    weights = {"base": 1, "tuned": 1}
    move = fixed(None, weights, version("a"))
    assert move is not None
    serving = alias(None).model_copy(update={"served_name": move.served_name, "targets": list(move.targets)})
    assert fixed(serving, weights, version("a")) is None
    assert fixed(serving, weights, version("b", effective=False), version("a")) is None
    assert fixed(serving, weights, version("b"), version("a")) is not None
    assert fixed(serving, {"base": 1, "tuned": 2}, version("a")) is not None


def test_two_adapters_of_one_content_are_two_targets() -> None:
    again = Version(adapter="again", served_name="again--a", digest=digest("a"), effective=True)
    move = fixed(None, {"tuned": 1, "again": 1}, version("a"), again)
    assert move is not None
    assert [one.served_name for one in move.targets] == ["tuned--a", "again--a"]


def test_routes_hold_every_version_that_answers_an_alias() -> None:
    move = fixed(None, {"base": 1, "tuned": 1}, version("a"))
    assert move is not None
    split = alias(None).model_copy(update={"targets": list(move.targets)})
    single = alias("b").model_copy(update={"name": "single"})
    gone = alias("c").model_copy(update={"name": "gone"})
    routes = route_aliases([split, single, gone], names={"assistant", "single"})
    assert routes.single == {"single": "tuned--b"}
    assert [(one.adapter, one.served_name, one.weight) for one in routes.splits["assistant"]] == [
        ("base", "base", 1),
        ("tuned", "tuned--a", 1),
    ]
    held = [
        DesiredAdapter(
            name="tuned", served_name=f"tuned--{letter}", digest=digest(letter), source="pvc://a/b", path="/"
        )
        for letter in "abc"
    ]
    wanted = wanted_adapters([ResolvedAdapter(name="tuned", required=False)], held=held, routes=routes)
    assert [(one.served_name, one.required) for one in wanted] == [("tuned--a", True), ("tuned--b", True)]
