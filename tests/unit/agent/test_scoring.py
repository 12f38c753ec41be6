"""Void and failed trials, and the figures of a run."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from whetstone_agent.scoring import read_trials, run_results, score_tasks
from whetstone_agent.tasks import AdmittedTask
from whetstone_agent.trials_table import write_trials
from whetstone_api.benchmark_target import MeasuredTarget
from whetstone_api.jobs import BenchmarkConfig
from whetstone_api.run_artifact import Comparability, RunArtifact, TaskScore
from whetstone_artifacts.figures import decimal


def task(name: str) -> AdmittedTask:
    return AdmittedTask(
        name=name, path=Path("/tasks") / name, digest="sha256:d", identity="sha256:d", image="i", seconds=1
    )


def write(folder: Path, name: str, *, reward: float | None, error: str | None = None, **more: Any) -> None:
    data = {
        "trial_name": name,
        "config": {"task": {"path": f"/tasks/{name.split('__')[0]}"}},
        "verifier_result": None if reward is None else {"rewards": {"reward": reward}},
        "exception_info": None if error is None else {"exception_type": error},
        "agent_result": {"n_input_tokens": 10, "n_output_tokens": 2},
        "started_at": "2026-01-01T00:00:00Z",
        "finished_at": "2026-01-01T00:01:30Z",
        **more,
    }
    (folder / name).mkdir(parents=True)
    (folder / name / "result.json").write_text(json.dumps(data))


def test_void_trials_are_told_from_failed_ones(tmp_path: Path) -> None:
    write(tmp_path, "a__1", reward=1.0)
    write(tmp_path, "a__2", reward=0.0, error="AgentTimeoutError")
    write(tmp_path, "b__1", reward=0.0, error="ModelUnavailableError")
    write(tmp_path, "b__2", reward=None, error="RewardFileNotFoundError")
    write(tmp_path, "c__1", reward=1.0)
    trials = read_trials(tmp_path)
    scores = score_tasks(trials, tasks=[task("a"), task("b"), task("c")], attempts=2)
    results = run_results(scores, uri="pvc://r/x")
    assert (results.trials, results.void, results.timeouts, results.tasks) == (6, 3, 1, 2)
    assert results.mean == "0.75"
    assert results.strict_mean == decimal((0.5 + 0 + 0.5) / 3)
    assert results.coverage == "0.5"
    assert (results.prompt_tokens, results.completion_tokens, results.duration_seconds) == (50, 10, 90)
    assert scores[2].trials[1].error == "MissingResult"


def test_an_unknown_exception_makes_a_trial_void_even_with_a_reward(tmp_path: Path) -> None:
    write(tmp_path, "a__1", reward=0.0, error="KeyError")
    assert read_trials(tmp_path)[0].reward is None


@pytest.mark.parametrize("text", ["", "{", '{"trial_name": "x"}', "[]"])
def test_a_half_written_result_is_left_out(tmp_path: Path, text: str) -> None:
    (tmp_path / "a__1").mkdir()
    (tmp_path / "a__1" / "result.json").write_text(text)
    assert read_trials(tmp_path) == []


def test_a_run_without_scored_trials_has_no_interval(tmp_path: Path) -> None:
    results = run_results(score_tasks([], tasks=[task("a")], attempts=1), uri="pvc://r/x")
    assert (results.mean, results.coverage, results.interval, results.duration_seconds) == ("0", "0", None, None)


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (-1e-9, "0"), (1.0, "1"), (1 / 3, "0.333333"), (100.0, "100"), (-0.25, "-0.25")]
)
def test_figures_are_plain_decimals(value: float, text: str) -> None:
    assert decimal(value) == text


def several_steps(parent: Path, *, strategy: str = "mean") -> Path:
    """Write a task of three steps."""
    folder = parent / "several"
    folder.mkdir()
    steps = "".join(f'[[steps]]\nname = "{name}"\nmin_reward = 0.5\n' for name in ("one", "two", "three"))
    (folder / "task.toml").write_text(f'multi_step_reward_strategy = "{strategy}"\n{steps}')
    return folder


def step(name: str, reward: float | None, error: str | None = None) -> dict[str, Any]:
    return {
        "step_name": name,
        "verifier_result": None if reward is None else {"rewards": {"reward": reward}},
        "exception_info": None if error is None else {"exception_type": error},
        "agent_result": {"n_input_tokens": 7, "n_output_tokens": 1, "metadata": {"turns": 2, "end": "Finished"}},
        "agent_execution": {"started_at": "2026-01-01T00:00:00Z", "finished_at": "2026-01-01T00:00:05Z"},
    }


@pytest.mark.parametrize(("at_work", "reward"), [(True, 0.0), (False, None)])
def test_an_agent_that_filled_its_disk_is_scored_and_a_sandbox_that_was_full_before_is_not(
    tmp_path: Path, *, at_work: bool, reward: float | None
) -> None:
    times = {"started_at": "2026-01-01T00:00:00Z", "finished_at": "2026-01-01T00:00:05Z"}
    more = {"agent_execution": times} if at_work else {}
    write(tmp_path / "job", "a__1", reward=None, error="SandboxOutOfDiskError", **more)
    (trial,) = read_trials(tmp_path / "job")
    assert (trial.reward, trial.error) == (reward, "SandboxOutOfDiskError")


def test_steps_before_the_disk_was_full_keep_their_rewards(tmp_path: Path) -> None:
    task_path = several_steps(tmp_path)
    steps = [step("one", 1.0), step("two", None, "SandboxOutOfDiskError")]
    more = {"config": {"task": {"path": str(task_path)}}, "step_results": steps, "agent_result": None}
    write(tmp_path / "job", "several__1", reward=None, **more)
    (trial,) = read_trials(tmp_path / "job")
    assert trial.reward == pytest.approx(1 / 3)


@pytest.mark.parametrize(("strategy", "reward"), [("mean", (1 + 0.4 + 0) / 3), ("final", 0.0)])
def test_a_step_that_was_not_reached_counts_as_zero(tmp_path: Path, strategy: str, reward: float) -> None:
    task_path = several_steps(tmp_path, strategy=strategy)
    harbors = 0.7 if strategy == "mean" else 0.4  # Harbor's own: over the steps that were executed
    steps = [step("one", 1.0), step("two", 0.4)]
    more = {"config": {"task": {"path": str(task_path)}}, "step_results": steps, "agent_result": None}
    write(tmp_path / "job", "several__1", reward=harbors, **more)
    trial = read_trials(tmp_path / "job")[0].score
    assert trial.reward == pytest.approx(reward)
    assert [(one.name, one.reward) for one in trial.steps or []] == [("one", 1.0), ("two", 0.4), ("three", None)]
    assert (trial.prompt_tokens, trial.completion_tokens, trial.turns, trial.agent_seconds) == (14, 2, 4, 10)


def test_a_step_that_the_infrastructure_spoiled_makes_the_trial_void(tmp_path: Path) -> None:
    path = several_steps(tmp_path)
    steps = [step("one", 1.0), step("two", None, "SandboxLostError")]
    write(tmp_path / "job", "several__1", reward=1.0, config={"task": {"path": str(path)}}, step_results=steps)
    trial = read_trials(tmp_path / "job")[0]
    assert (trial.reward, trial.error) == (None, "SandboxLostError")


@pytest.mark.parametrize(
    ("rewards", "reward", "kept"),
    [
        ({"reward": 0.5}, 0.5, None),
        ({"reward": 1, "style": 0}, 1.0, {"reward": 1.0, "style": 0.0}),
        ({"tests": 1.0, "style": 0.5}, 0.75, {"tests": 1.0, "style": 0.5}),
    ],
)
def test_several_rewards_are_kept_and_one_of_them_counts(
    tmp_path: Path, rewards: dict[str, float], reward: float, kept: dict[str, float] | None
) -> None:
    write(tmp_path, "a__1", reward=None, verifier_result={"rewards": rewards})
    trial = read_trials(tmp_path)[0].score
    assert (trial.reward, trial.rewards) == (reward, kept)


def test_why_trials_ended_is_counted(tmp_path: Path) -> None:
    def said(**metadata: Any) -> dict[str, Any]:
        return {"agent_result": {"n_input_tokens": 1, "n_output_tokens": 1, "metadata": metadata}}

    write(tmp_path, "a__1", reward=0.0, **said(end="ContextLength", turns=4))
    write(tmp_path, "a__2", reward=0.0, **said(end="MaxTurns", model={"truncated": 2, "overflows": 0, "calls": 6}))
    write(tmp_path, "a__3", reward=0.0, error="ContextLengthExceededError")
    write(tmp_path, "a__4", reward=0.0, error="OutputLengthExceededError")
    write(tmp_path, "a__5", reward=0.0, **said(model={"overflows": 1}))
    write(tmp_path, "a__6", reward=None, error="ModelUnavailableError", **said(model={"truncated": 1}))
    scores = score_tasks(read_trials(tmp_path), tasks=[task("a")], attempts=6)
    results = run_results(scores, uri="pvc://r/x")
    assert (results.context_overflows, results.truncations, results.timeouts, results.void) == (3, 2, 0, 1)
    assert [trial.turns for trial in scores[0].trials[:3]] == [4, 6, None]


def test_tokens_have_a_price_and_each_k_its_chance(tmp_path: Path, configure: Callable[..., BenchmarkConfig]) -> None:
    for attempt, reward in enumerate((1.0, 0.0, 0.0, 0.5)):
        write(tmp_path, f"a__{attempt}", reward=reward)
    scores = score_tasks(read_trials(tmp_path), tasks=[task("a")], attempts=4)
    prices = {"inputPerMillion": "2.5", "outputPerMillion": "10"}
    told = run_results(scores, uri="u", config=configure(attempts=4, prices=prices, passAtK=[1, 2, 3]))
    assert told.cost == "0.00018"  # 40 prompt tokens at 2.5 and 8 completion tokens at 10 a million
    assert [(one.k, one.value) for one in told.pass_at_k or []] == [(1, "0.25"), (2, "0.5"), (3, "0.75")]
    plain = run_results(scores, uri="u", config=configure(attempts=4))
    assert plain.cost is None
    assert [one.k for one in plain.pass_at_k or []] == [1, 4]


def test_every_trial_is_a_row_of_the_parquet_table(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    write(tmp_path / "job", "a__1", reward=1.0)
    write(tmp_path / "job", "a__2", reward=None, error="SandboxLostError")
    scores = score_tasks(read_trials(tmp_path / "job"), tasks=[task("a"), task("b")], attempts=2)
    write_trials(tmp_path, artifact(scores))
    table = pq.read_table(tmp_path / "trials.parquet")
    rows = [(row["task"], row["attempt"], row["reward"], row["void"], row["error"]) for row in table.to_pylist()]
    assert rows == [
        ("a", 1, 1.0, False, None),
        ("a", 2, None, True, "SandboxLostError"),
        ("b", 1, None, True, "MissingResult"),
        ("b", 2, None, True, "MissingResult"),
    ]
    assert set(table["run"].to_pylist()) == {"candidate"}
    assert table.schema.field("seconds").type == "double"


def artifact(scores: list[TaskScore]) -> RunArtifact:
    same = Comparability(suite_digest="s", agent="a", sampling="s", attempts=2, harness="h")
    return RunArtifact(
        recipe_digest="sha256:0",
        target=MeasuredTarget(served_name="base"),
        comparability=same,
        results=run_results(scores, uri="pvc://r/x"),
        tasks=scores,
        finished_at="2026-01-01T00:00:00Z",
        object_name="candidate",
        namespace="team",
    )
