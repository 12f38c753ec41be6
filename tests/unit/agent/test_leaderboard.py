"""Submissions made of real Harbor runs, and what the leaderboard's rules forbid."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from unit.agent.fake_model import FakeModel
from unit.agent.test_run import run, trial_folder
from whetstone_agent.harness import EnvironmentChoice
from whetstone_api.jobs import BenchmarkConfig
from whetstone_artifacts.leaderboard import check, job_folders
from whetstone_cli.__main__ import main

type Configure = Callable[..., BenchmarkConfig]
type StartModel = Callable[..., Awaitable[tuple[FakeModel, str]]]
type Edit = Callable[[dict[str, Any]], None]

ONE_TASK = {"dataset": {"uri": "pvc://data/tasks"}, "tasks": {"limit": 1}}
ABOUT = (
    "--agent-url=https://example.com/agent",
    "--agent-name=Our Agent",
    "--agent-organization=Example",
    "--model=small-1",
    "--model-provider=vllm",
    "--model-display-name=Small 1",
    "--model-organization=Example",
)


@pytest.fixture
async def finished(configure: Configure, local: EnvironmentChoice, dataset: Path) -> BenchmarkConfig:
    """A run of one task, five times."""
    config = configure(
        agent={"name": "oracle"}, attempts=5, suite={"dataset": {"uri": "pvc://d/t"}, "tasks": {"limit": 1}}
    )
    await run(config, local)
    return config


def edited(path: Path, edit: Edit) -> None:
    value = json.loads(path.read_text())
    edit(value)
    path.write_text(json.dumps(value))


def submit(config: BenchmarkConfig, target: Path) -> int:
    return main(["leaderboard", config.output_path, "-o", str(target), *ABOUT])


async def test_a_submission_has_metadata_and_whole_job_folders(
    finished: BenchmarkConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert submit(finished, tmp_path) == 0
    folder = tmp_path / "submissions" / "terminal-bench" / "2.0" / "Our-Agent__small-1"
    metadata = yaml.safe_load((folder / "metadata.yaml").read_text())
    assert metadata["agent_url"] == "https://example.com/agent"
    assert metadata["models"][0]["model_org_display_name"] == "Example"
    (job,) = [path for path in folder.iterdir() if path.is_dir()]
    assert len(list(job.glob("task-0__*/result.json"))) == 5
    assert (job / "config.json").is_file()
    out = capsys.readouterr().out
    assert "5 trials of 1 tasks, 0 violations" in out
    assert "Terminal-Bench 2.0 has 89 tasks" in out
    assert submit(finished, tmp_path) == 1
    assert "exists; give another -o" in capsys.readouterr().err


def override(*path: str, value: Any) -> Edit:
    def edit(result: dict[str, Any]) -> None:
        for key in path[:-1]:
            result = result[key]
        result[path[-1]] = value

    return edit


BROKEN: tuple[tuple[Edit, str], ...] = (
    (override("config", "timeout_multiplier", value=2.0), "timeout_multiplier is 2.0; it must be 1.0"),
    (override("config", "agent_timeout_multiplier", value=3), "agent_timeout_multiplier is 3"),
    (override("config", "agent", "override_timeout_sec", value=9), "agent.override_timeout_sec is 9"),
    (override("config", "verifier", "max_timeout_sec", value=9), "verifier.max_timeout_sec is 9"),
    (override("config", "environment", "override_memory_mb", value=1), "environment.override_memory_mb is 1"),
    (
        override("config", "environment", "kwargs", value={"limits": {"memory": "1Gi"}}),
        "environment.kwargs.limits is set (suite.harbor.trialResources)",
    ),
    (override("verifier_result", value=None), "neither reward nor exception"),
    (override("finished_at", value=None), "no end"),
)


async def test_every_broken_rule_is_named_with_its_trial(finished: BenchmarkConfig) -> None:
    trial = trial_folder(finished, "task-0")
    whole = (trial / "result.json").read_text()
    for edit, message in BROKEN:
        edited(trial / "result.json", edit)
        found = check(job_folders(Path(finished.output_path))).violations
        assert any(text.startswith(f"{trial.parent.name}/{trial.name}: ") and message in text for text in found), (
            message
        )
        (trial / "result.json").write_text(whole)
    assert check(job_folders(Path(finished.output_path))).violations == []


async def test_a_broken_rule_leaves_no_submission(
    finished: BenchmarkConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edited(trial_folder(finished, "task-0") / "result.json", BROKEN[0][0])
    assert submit(finished, tmp_path) == 1
    assert "the leaderboard would refuse this:" in capsys.readouterr().err
    assert not (tmp_path / "submissions").exists()


async def test_missing_files_and_attempts_are_named(finished: BenchmarkConfig) -> None:
    trial = trial_folder(finished, "task-0")
    (trial / "result.json").unlink()
    edited(trial.parent / "config.json", override("agents", value=[{"override_timeout_sec": 5}]))
    found = check(job_folders(Path(finished.output_path))).violations
    assert any("result.json is missing or no JSON" in text for text in found)
    assert any("agents[0].override_timeout_sec is 5" in text for text in found)
    assert any(text.startswith("task task-0: 4 trials; the leaderboard asks for at least 5") for text in found)
    (trial.parent / "config.json").unlink()
    found = check(job_folders(Path(finished.output_path))).violations
    assert any("config.json is missing" in text for text in found)


async def test_an_agent_that_reads_the_benchmarks_pages_is_named(
    configure: Configure, local: EnvironmentChoice, model: StartModel
) -> None:
    _, url = await model(lambda _: "```bash\ntrue https://github.com/laude-institute/terminal-bench-2\n```")
    config = configure(serverUrl=url, suite=ONE_TASK)
    await run(config, local)
    found = check(job_folders(Path(config.output_path))).violations
    assert any("reaches for github.com/laude-institute/terminal-bench" in text for text in found)


INVALID = (
    ({"invalid": "9 of 12 trials are void (75.0%)"}, "9 of 12 trials are void"),
    ({"engineCheck": {"checkedAt": "2026-01-01T00:00:00Z", "change": "the image changed"}}, "the image changed"),
)


@pytest.mark.parametrize(("told", "why"), INVALID)
async def test_a_run_that_is_not_valid_is_refused_by_name_and_reason(
    finished: BenchmarkConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str], told: dict[str, Any], why: str
) -> None:
    edited(Path(finished.output_path) / "results.json", lambda results: results.update(told))
    for options in (["-o", str(tmp_path), *ABOUT], ["--check"]):
        assert main(["leaderboard", finished.output_path, *options]) == 1
        streams = capsys.readouterr()
        assert f"BenchmarkRun team/candidate ({finished.output_path}) is not valid: {why}" in streams.err
        assert streams.out == ""
    assert not (tmp_path / "submissions").exists()


async def test_one_run_that_is_not_valid_spoils_a_submission_of_several(
    finished: BenchmarkConfig, configure: Configure, local: EnvironmentChoice, tmp_path: Path
) -> None:
    other = configure(name="other", agent={"name": "oracle"}, attempts=5, suite=ONE_TASK)
    await run(other, local)
    assert main(["leaderboard", finished.output_path, other.output_path, "-o", str(tmp_path / "1"), *ABOUT]) == 0
    edited(Path(other.output_path) / "results.json", override("invalid", value="too many are void"))
    assert main(["leaderboard", finished.output_path, other.output_path, "-o", str(tmp_path / "2"), *ABOUT]) == 1
    assert not (tmp_path / "2").exists()


def test_what_the_leaderboard_shows_must_be_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["leaderboard", str(tmp_path), "--model", "m"]) == 2
    assert "asks for --agent-url, --agent-name" in capsys.readouterr().err


def test_a_folder_without_the_results_of_a_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["leaderboard", str(tmp_path), "--check"]) == 1
    assert "name the folder of a finished run's results" in capsys.readouterr().err
