"""Void and failed trials, and the figures of a run."""

import json
from pathlib import Path
from typing import Any

import pytest
from whetstone_agent.scoring import decimal, read_trials, run_results, score_tasks
from whetstone_agent.tasks import AdmittedTask


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
    results = run_results(scores, trials=trials, uri="pvc://r/x")
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
    results = run_results(score_tasks([], tasks=[task("a")], attempts=1), trials=[], uri="pvc://r/x")
    assert (results.mean, results.coverage, results.interval, results.duration_seconds) == ("0", "0", None, None)


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (-1e-9, "0"), (1.0, "1"), (1 / 3, "0.333333"), (100.0, "100"), (-0.25, "-0.25")]
)
def test_figures_are_plain_decimals(value: float, text: str) -> None:
    assert decimal(value) == text
