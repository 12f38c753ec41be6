"""Runs in several pods, killed and laid out anew: real Harbor, real verifiers, local processes in place of pods."""

import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from unit.agent.fake_model import FakeModel
from unit.agent.test_run import RecordingReporter, artifact_of
from whetstone_agent import run as run_module
from whetstone_agent import run_end
from whetstone_agent.admission import admit_tasks
from whetstone_agent.failure import RunFailure
from whetstone_agent.harness import EnvironmentChoice
from whetstone_agent.kept_trials import VOID_ROUNDS
from whetstone_agent.recipe import recipe_digest
from whetstone_agent.request import Request
from whetstone_agent.run import run_benchmark
from whetstone_agent.shards import Shard
from whetstone_agent.tally import Counter, progress_of
from whetstone_api.jobs import BenchmarkConfig
from whetstone_api.reports import TerminationReport
from whetstone_api.run_artifact import RESULTS_FILE, RunArtifact
from whetstone_api.vocabulary import Reason
from whetstone_artifacts.errors import OutputLockedError
from whetstone_artifacts.lock import output_lock, shared_lock

type Configure = Callable[..., BenchmarkConfig]


async def run_shard(
    config: BenchmarkConfig, environment: EnvironmentChoice, index: int
) -> tuple[TerminationReport, RecordingReporter]:
    reporter = RecordingReporter()
    shard = Shard(index, config.shards)
    report = await run_benchmark(config, reporter, environment, shard)  # type: ignore[arg-type]
    return report, reporter


def trials_in(config: BenchmarkConfig, pattern: str = "*") -> dict[str, str]:
    """Return the job folder of each trial that has a result."""
    found = Path(config.output_path).glob(f"harbor/{pattern}/*/result.json")
    return {path.parent.name: path.parent.parent.name for path in found}


def spoil(config: BenchmarkConfig, trial: str, error: str) -> None:
    """Make a trial one that ended with an error."""
    path = next(Path(config.output_path).glob(f"harbor/*/{trial}/result.json"))
    result = json.loads(path.read_text())
    result["exception_info"] = {
        "exception_type": error,
        "exception_message": "",
        "exception_traceback": "",
        "occurred_at": result["finished_at"],
    }
    path.write_text(json.dumps(result))


def test_every_task_goes_to_one_shard_and_all_places_are_used(dataset: Path, configure: Configure) -> None:
    tasks = admit_tasks(dataset, configure().suite).tasks
    shards = Shard(0, 3).all()
    dealt = [[task.name for task in shard.tasks(list(reversed(tasks)))] for shard in shards]
    assert dealt == [["task-0", "task-3"], ["task-1"], ["task-2"]]
    assert [shard.concurrency(8) for shard in shards] == [3, 3, 2]


async def test_last_shard_to_end_scores_the_whole_run(configure: Configure, local: EnvironmentChoice) -> None:
    config = configure(agent={"name": "oracle"}, shards=2, attempts=2, concurrency=4)
    first, _ = await run_shard(config, local, 1)
    assert (first.result, "shard 1 of 2" in first.message) == ({}, True)
    assert not (Path(config.output_path) / "results.json").exists()
    last, reporter = await run_shard(config, local, 0)
    assert last.result["results"]["trials"] == 8
    assert last.result["results"]["mean"] == "1"
    assert [len(task.trials) for task in artifact_of(config).tasks] == [2, 2, 2, 2]
    folders: dict[str, set[str]] = {}
    for trial, folder in trials_in(config).items():
        folders.setdefault(trial.partition("__")[0], set()).add(folder.split("-", 1)[1])
    assert folders == {f"task-{n}": {f"{n % 2}-of-2"} for n in range(4)}
    trials = [report for report in reporter.reports if report.phase == "Trials"]
    assert (trials[0].step, trials[0].passed, trials[-1].step) == (4, 4, 8)
    assert all(report.max_steps == 8 for report in trials)


async def test_shard_killed_before_it_scored_scores_when_it_is_started_again(
    configure: Configure, local: EnvironmentChoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure(agent={"name": "oracle"}, shards=2)
    await run_shard(config, local, 0)

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("whetstone_agent.run_end.publish_results", die)
        with pytest.raises(KeyboardInterrupt):
            await run_shard(config, local, 1)
    before = trials_in(config)
    report, _ = await run_shard(config, local, 1)
    assert report.result["results"]["trials"] == 4
    assert report.result["adopted"] is False
    assert trials_in(config) == before


async def test_shards_that_end_together_score_the_run_once(
    configure: Configure, local: EnvironmentChoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure(agent={"name": "oracle"}, shards=2)
    measure, publish = run_module._measure, run_end.publish_results
    locked: list[bool] = []

    async def measured_beside_the_other(request: Request, *more: Any) -> None:
        await measure(request, *more)
        if request.shard.index == 0:
            await run_shard(config, local, 1)

    def publish_watched(output: Path, artifact: RunArtifact) -> None:
        with pytest.raises(OutputLockedError), output_lock(output / RESULTS_FILE, wait_seconds=0):
            pass
        locked.append(True)
        publish(output, artifact)

    monkeypatch.setattr(run_module, "_measure", measured_beside_the_other)
    monkeypatch.setattr(run_end, "publish_results", publish_watched)
    report, _ = await run_shard(config, local, 0)
    assert report.result["results"]["trials"] == 4
    assert locked == [True]


async def test_shard_that_runs_void_trials_again_is_waited_for(
    configure: Configure, local: EnvironmentChoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure(agent={"name": "oracle"}, shards=2)
    await run_shard(config, local, 0)
    spoil(config, next(iter(trials_in(config))), "SandboxLostError")
    measure = run_module._measure
    other: list[TerminationReport] = []

    async def measured_after_the_other(request: Request, *more: Any) -> None:
        if request.shard.index == 0:
            other.append((await run_shard(config, local, 1))[0])
        await measure(request, *more)

    monkeypatch.setattr(run_module, "_measure", measured_after_the_other)
    report, _ = await run_shard(config, local, 0)
    assert [one.result for one in other] == [{}]
    assert (report.result["results"]["trials"], report.result["results"]["void"]) == (4, 0)


@pytest.mark.parametrize("change", [{"shards": 1}, {"shards": 3}, {"concurrency": 3}])
async def test_run_with_another_layout_takes_the_finished_trials_over(
    configure: Configure, local: EnvironmentChoice, change: dict[str, int]
) -> None:
    config = configure(agent={"name": "oracle"}, shards=2, attempts=2)
    await run_shard(config, local, 0)
    before = trials_in(config)
    assert len(before) == 4
    again = configure(agent={"name": "oracle"}, **{"shards": 2, "attempts": 2, "concurrency": 4, **change})
    for index in range(again.shards):
        report, _ = await run_shard(again, local, index)
    assert report.result["results"]["mean"] == "1"
    after = trials_in(again, f"*-of-{again.shards}")
    assert set(before) < set(after)
    assert len(after) == 8


async def test_run_with_another_recipe_takes_nothing_over(configure: Configure, local: EnvironmentChoice) -> None:
    config = configure(agent={"name": "oracle"}, shards=2)
    await run_shard(config, local, 0)
    before = trials_in(config)
    other = configure(agent={"name": "nop"}, shards=2)
    await run_shard(other, local, 0)
    report, _ = await run_shard(other, local, 1)
    assert report.result["results"]["mean"] == "0"
    assert trials_in(config).items() > before.items()


async def test_void_trial_runs_again_up_to_a_bound_and_a_stopped_one_always(
    configure: Configure, local: EnvironmentChoice, dataset: Path
) -> None:
    config = configure(agent={"name": "oracle"})
    await run_shard(config, local, 0)
    results = Path(config.output_path) / "results.json"
    names = sorted(trials_in(config))
    for number in range(VOID_ROUNDS):
        results.unlink()
        spoil(config, names[0], "PodStartError")
        spoil(config, names[1], "CancelledError")
        await run_shard(config, local, 0)
        now = sorted(trials_in(config))
        assert now[0] != names[0], f"round {number}"
        assert now[1] != names[1], f"round {number}"
        names = now
    results.unlink()
    spoil(config, names[0], "PodStartError")
    spoil(config, names[1], "CancelledError")
    report, _ = await run_shard(config, local, 0)
    now = sorted(trials_in(config))
    assert now[0] == names[0]
    assert now[1] != names[1]
    assert report.result["results"]["void"] == 1
    folder = Shard().folder(results.parent, recipe_digest(config, admit_tasks(dataset, config.suite).tasks))
    assert json.loads((folder / "void-rounds.json").read_text()) == {"task-0@any": VOID_ROUNDS}


async def test_budget_of_a_whole_run_is_one_for_all_pods_and_a_larger_one_goes_on(
    configure: Configure, local: EnvironmentChoice, model: Callable[..., Awaitable[tuple[FakeModel, str]]]
) -> None:
    _, url = await model(lambda _: "I would rather not.")

    def budgeted(tokens: int) -> BenchmarkConfig:
        agent = {"name": "whetstone", "budget": {"runTokens": tokens}}
        return configure(serverUrl=url, agent=agent, shards=2, concurrency=2)

    used = 13
    """Tokens of a trial of one call."""
    await run_shard(budgeted(4 * used), local, 0)
    assert len(trials_in(budgeted(used))) == 2
    with pytest.raises(RunFailure) as failure:
        await run_shard(budgeted(3 * used), local, 1)
    assert failure.value.reason is Reason.BUDGET_EXCEEDED
    assert f"{3 * used} tokens used of {3 * used} (spec.agent.budget.runTokens)" in failure.value.message
    assert not (Path(budgeted(used).output_path) / RESULTS_FILE).exists()
    report, _ = await run_shard(budgeted(4 * used + 1), local, 1)
    assert (report.result["results"]["trials"], report.result["results"]["void"]) == (4, 0)


async def test_shard_without_tasks_ends_at_once(configure: Configure, local: EnvironmentChoice, dataset: Path) -> None:
    for name in ("task-1", "task-2", "task-3"):
        shutil.rmtree(dataset / name)
    config = configure(agent={"name": "oracle"}, shards=2)
    await run_shard(config, local, 1)
    report, _ = await run_shard(config, local, 0)
    assert report.result["results"]["trials"] == 1


def test_only_one_run_at_a_time_writes_to_an_output(tmp_path: Path) -> None:
    place = tmp_path / "out"
    with shared_lock(place, holder="a"), shared_lock(place, holder="a", wait_seconds=0):
        with pytest.raises(OutputLockedError), shared_lock(place, holder="b", wait_seconds=0):
            pass
        with pytest.raises(OutputLockedError), output_lock(place, wait_seconds=0):
            pass
    with shared_lock(place, holder="b", wait_seconds=0):
        pass


def test_time_left_follows_the_pace_of_this_try(tmp_path: Path) -> None:
    now = [100.0]
    counter = Counter(tmp_path, 10, clock=lambda: now[0])
    for number in range(4):
        counter.found(f"old-{number}", 1.0)
    assert counter.tally().eta_seconds is None
    counter.started("a")
    now[0] += 30
    counter.ended("a", 0.5)
    counter.started("b")
    now[0] += 30
    counter.ended("b", None)
    tally = counter.tally()
    assert (tally.passed, tally.failed, tally.void, tally.done, tally.eta_seconds) == (4, 1, 1, 6, 120)
    whole = progress_of([tally, None, tally.model_copy(update={"eta_seconds": 500})], total=30)
    assert (whole.step, whole.max_steps, whole.void, whole.eta_seconds) == (12, 30, 2, 500)
