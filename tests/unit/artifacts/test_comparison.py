"""What a comparison says beyond its figures."""

import pytest
from whetstone_api.benchmark_result import RunResults, Verdict
from whetstone_api.benchmark_target import MeasuredTarget
from whetstone_api.run_artifact import Comparability, RunArtifact, TaskScore, TrialScore
from whetstone_artifacts.comparison import compare


def measured(**changed: str) -> Comparability:
    same = {"suite_digest": "sha256:0011223344", "agent": "a", "sampling": "s", "attempts": 1, "harness": "harbor 1"}
    return Comparability.model_validate({**same, **changed})


def scored(*rewards: float | None) -> list[TaskScore]:
    return [
        TaskScore(task=f"t{n}", digest="d", trials=[TrialScore(trial=f"t{n}__1", reward=reward)])
        for n, reward in enumerate(rewards)
    ]


def baseline(*rewards: float | None) -> RunArtifact:
    nothing = RunResults(tasks=0, trials=0, mean="0", strict_mean="0", coverage="0", void=0)
    return RunArtifact(
        recipe_digest="sha256:0",
        target=MeasuredTarget(served_name="base"),
        comparability=measured(),
        results=nothing,
        tasks=scored(*rewards),
        finished_at="2026-01-01T00:00:00Z",
        object_name="base",
        namespace="team",
    )


@pytest.mark.parametrize(("value", "words"), [(0.0, "score 0 on every task (solves none of 20)"), (1.0, "solves all")])
def test_tasks_that_nobody_or_everybody_solves_are_named(value: float, words: str) -> None:
    found = compare(
        scores=scored(*[value] * 20), measured=measured(), baseline=baseline(*[value] * 20), baseline_name="base"
    )
    assert found.verdict is Verdict.INCONCLUSIVE
    assert words in (found.message or "")


def test_too_few_tasks_for_any_verdict_are_named() -> None:
    found = compare(scores=scored(1, 1, 1), measured=measured(), baseline=baseline(0, 0, 0), baseline_name="base")
    assert (found.verdict, found.minimum_detectable) == (Verdict.INCONCLUSIVE, None)
    assert "3 tasks are too few" in (found.message or "")


def test_only_tasks_that_both_scored_are_paired() -> None:
    here, there = scored(1, 1, None, 0), baseline(0, None, 1, 0)
    found = compare(scores=here, measured=measured(), baseline=there, baseline_name="base")
    assert (found.wins, found.losses, found.ties, found.difference) == (1, 0, 1, "0.5")


def test_intervals_at_other_confidences_lie_inside_each_other() -> None:
    found = compare(
        scores=scored(*[1.0] * 9, 0, 0), measured=measured(), baseline=baseline(*[0.0] * 11), baseline_name="base"
    )
    further = {one.confidence: float(one.low) for one in found.further_intervals or []}
    assert found.interval is not None
    assert further["0.99"] < float(found.interval.low) < further["0.9"]


def test_a_baseline_that_is_not_valid_is_none_to_compare_with() -> None:
    spoiled = baseline(0, 0, 0).model_copy(update={"invalid": "9 of 12 trials are void (75.0%)"})
    found = compare(scores=scored(1, 1, 1), measured=measured(), baseline=spoiled, baseline_name="base")
    assert (found.verdict, found.difference) == (Verdict.NOT_COMPARABLE, None)
    assert "the baseline is not valid: 9 of 12 trials are void" in (found.message or "")


def test_what_differs_is_named_with_both_values() -> None:
    found = compare(
        scores=scored(1), measured=measured(agent="b", harness="harbor 2"), baseline=baseline(1), baseline_name="base"
    )
    assert found.verdict is Verdict.NOT_COMPARABLE
    assert "the agent (spec.agent): b here, a in the baseline; the harness: harbor 2 here" in (found.message or "")
