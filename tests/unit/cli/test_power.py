"""How many tasks a wanted difference needs: the advice holds when it is followed."""

import json
import random
from pathlib import Path

import pytest
from whetstone_api.benchmark_result import RunResults
from whetstone_api.benchmark_target import MeasuredTarget
from whetstone_api.run_artifact import Comparability, RunArtifact, TaskScore, TrialScore
from whetstone_artifacts.power import Spread, assumed_spread, measured_spread, tasks_needed
from whetstone_artifacts.statistics import compare_paired
from whetstone_cli.__main__ import main


@pytest.mark.parametrize(("difference", "attempts"), [(0.15, 1), (0.15, 5), (0.3, 2)])
def test_who_follows_the_advice_gets_the_wanted_power(difference: float, attempts: int) -> None:
    rng = random.Random(f"{difference} {attempts}")
    spread = assumed_spread(0.5, 0.2)
    tasks = tasks_needed(difference, attempts=attempts, spread=spread, effect_spread=0.0)
    assert tasks is not None
    shown, rounds = 0, 200
    for _ in range(rounds):
        chances = [rng.choice((0.3, 0.7)) for _ in range(tasks)]
        here, there = (
            [sum(rng.random() < p + half for _ in range(attempts)) / attempts for p in chances]
            for half in (difference / 2, -difference / 2)
        )
        paired = compare_paired(here, there, attempts=attempts)
        assert paired is not None
        shown += paired.interval.low > 0
    assert 0.72 <= shown / rounds <= 0.93


def test_the_advice_is_that_of_an_independent_implementation() -> None:
    from statsmodels.stats.power import NormalIndPower

    spread = Spread(within=0.2, basis="")
    ours = tasks_needed(0.1, attempts=1000, spread=spread, effect_spread=0.3, power=0.9)
    # `ratio=0` is one sample: the differences of tasks, whose effect spreads by 0.3 and which attempts hardly disturb.
    theirs = NormalIndPower().solve_power(effect_size=0.1 / 0.3, alpha=0.05, power=0.9, ratio=0)
    assert ours == pytest.approx(theirs, abs=1.5)


def test_attempts_do_not_replace_tasks_where_the_effect_differs() -> None:
    spread = assumed_spread(0.5)
    few, many = (tasks_needed(0.1, attempts=a, spread=spread, effect_spread=0.2) for a in (1, 10_000))
    assert few is not None
    assert many is not None
    assert few > many >= 30


def write_results(folder: Path, rewards: list[list[float | None]]) -> None:
    tasks = [
        TaskScore(
            task=f"t{n}", digest="d", trials=[TrialScore(trial=f"t{n}__{k}", reward=r) for k, r in enumerate(own)]
        )
        for n, own in enumerate(rewards)
    ]
    run = RunArtifact(
        recipe_digest="sha256:0",
        target=MeasuredTarget(served_name="base"),
        comparability=Comparability(suite_digest="s", agent="a", sampling="s", attempts=2, harness="h"),
        results=RunResults(tasks=1, trials=1, mean="0", strict_mean="0", coverage="0", void=0),
        tasks=tasks,
        finished_at="2026-01-01T00:00:00Z",
        object_name="run",
        namespace="team",
    )
    (folder / "results.json").write_text(run.to_json())


def test_attempts_of_a_finished_run_say_how_much_attempts_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_results(tmp_path, [[1, 1], [0, 0], [1, 1], [0, None]])
    assert main(["power", "0.2", "--results", str(tmp_path), "--effect-spread", "0.1", "--output", "json"]) == 0
    steady = {row["attempts"]: row["tasks"] for row in json.loads(capsys.readouterr().out)["needed"]}
    write_results(tmp_path, [[1, 0], [0, 1], [1, 0], [0, None]])
    assert main(["power", "0.2", "--results", str(tmp_path), "--effect-spread", "0.1", "--output", "json"]) == 0
    shaky = {row["attempts"]: row["tasks"] for row in json.loads(capsys.readouterr().out)["needed"]}
    assert steady[10] <= 10 < shaky[2]


def test_within_variance_is_unbiased() -> None:
    rng = random.Random(3)
    tasks = [
        TaskScore(
            task=str(n),
            digest="d",
            trials=[TrialScore(trial=str(k), reward=float(rng.random() < 0.3)) for k in range(3)],
        )
        for n in range(4000)
    ]
    found = measured_spread(tasks)
    assert found is not None
    assert found.within == pytest.approx(0.3 * 0.7, abs=0.01)


def test_a_run_without_scored_trials_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_results(tmp_path, [[None]])
    assert main(["power", "0.2", "--results", str(tmp_path)]) == 1
    assert "no trial was scored" in capsys.readouterr().err


def test_the_table_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["power", "0.1", "--mean", "0.3"]) == 0
    assert "To show a difference of 0.1 with a chance of 0.8 (assumed: mean 0.3, tasks spread by 0.3)" in (
        capsys.readouterr().out
    )
