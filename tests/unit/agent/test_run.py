"""Whole runs: real Harbor, real verifiers, a fake model server, and local processes in place of pods."""

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from unit.agent.fake_model import FakeModel
from whetstone_agent.admission import admit_tasks
from whetstone_agent.failure import RunFailure
from whetstone_agent.harness import EnvironmentChoice
from whetstone_agent.recipe import recipe_digest, sampling_identity
from whetstone_agent.run import run_benchmark
from whetstone_agent.shards import Shard
from whetstone_api.access import API_KEY_VARIABLE
from whetstone_api.benchmark_agent import SamplingSpec
from whetstone_api.digests import canonical_digest
from whetstone_api.jobs import BenchmarkConfig
from whetstone_api.reports import MAX_TERMINATION_BYTES, Outcome, ProgressReport, TerminationReport
from whetstone_api.run_artifact import RunArtifact
from whetstone_api.vocabulary import Reason

type Configure = Callable[..., BenchmarkConfig]
type StartModel = Callable[..., Awaitable[tuple[FakeModel, str]]]


class RecordingReporter:
    """Keeps what is reported; the sending itself is tested where it lives."""

    def __init__(self) -> None:
        self.reports: list[ProgressReport] = []

    def send(self, report: ProgressReport) -> None:
        self.reports.append(report)


async def run(config: BenchmarkConfig, environment: EnvironmentChoice) -> TerminationReport:
    return await run_benchmark(config, RecordingReporter(), environment)  # type: ignore[arg-type]


def artifact_of(config: BenchmarkConfig) -> RunArtifact:
    return RunArtifact.model_validate_json((Path(config.output_path) / "results.json").read_bytes())


def trial_folder(config: BenchmarkConfig, task: str) -> Path:
    return next(Path(config.output_path).glob(f"harbor/*/{task}__*"))


def obedient(messages: list[dict[str, str]]) -> str:
    """Create the file that the instruction names, then say so."""
    if messages[-1]["content"].startswith("Exit code: 0"):
        return "DONE"
    found = re.search(r"Create the file (\S+)\.", messages[-1]["content"])
    return f"```bash\ntouch {found[1]}\n```" if found else "OK"


def lazy(messages: list[dict[str, str]]) -> str:
    return "I would rather not."


async def test_oracle_solves_every_task_and_nop_none(configure: Configure, local: EnvironmentChoice) -> None:
    for agent, mean in (("oracle", "1"), ("nop", "0")):
        report = await run(configure(name=agent, agent={"name": agent}), local)
        assert report.outcome is Outcome.SUCCEEDED
        assert report.result["results"]["mean"] == mean
        assert report.result["results"]["coverage"] == "1"


async def test_iterative_agent_works_in_the_sandbox_and_its_episode_is_kept(
    configure: Configure, local: EnvironmentChoice, model: StartModel
) -> None:
    fake, url = await model(obedient)
    config = configure(serverUrl=url)
    report = await run(config, local)
    results = report.result["results"]
    assert (results["mean"], results["tasks"], results["void"]) == ("1", 4, 0)
    assert results["completionTokens"] == 4 * 2 * 3
    trial = trial_folder(config, "task-0")
    trajectory = json.loads((trial / "agent" / "trajectory.json").read_text())
    from harbor.models.trajectories.trajectory import Trajectory

    Trajectory.model_validate(trajectory)
    assert trajectory["steps"][2]["tool_calls"][0]["arguments"] == {"command": "touch done_0.txt"}
    row = json.loads((trial / "agent" / "messages.jsonl").read_text())
    assert [message["role"] for message in row["messages"]] == ["system", "user", "assistant", "user", "assistant"]
    sampled = [request for request in fake.requests if "seed" in request]
    assert {(one["seed"], one["temperature"], one["top_p"]) for one in sampled} == {(7, 0, 0.9)}


def test_sampling_in_other_words_is_the_same_and_another_share_is_not() -> None:
    texts = ("0.90", "9e-1", "0.8")
    ours, same, other = (
        canonical_digest(sampling_identity(SamplingSpec.model_validate({"topP": text}))) for text in texts
    )
    assert ours == same != other


@pytest.mark.parametrize(("given", "sent"), [("k-1", "Bearer k-1"), (None, "Bearer none")])
async def test_every_request_carries_the_runners_key(
    configure: Configure,
    local: EnvironmentChoice,
    model: StartModel,
    monkeypatch: pytest.MonkeyPatch,
    given: str | None,
    sent: str,
) -> None:
    monkeypatch.delenv(API_KEY_VARIABLE, raising=False)
    if given is not None:
        monkeypatch.setenv(API_KEY_VARIABLE, given)
    fake, url = await model(lazy)
    await run(configure(serverUrl=url), local)
    assert fake.keys == {sent}


async def test_progress_counts_trials(configure: Configure, local: EnvironmentChoice) -> None:
    reporter = RecordingReporter()
    await run_benchmark(configure(agent={"name": "nop"}), reporter, local)  # type: ignore[arg-type]
    trials = [report for report in reporter.reports if report.phase == "Trials"]
    assert [report.step for report in trials] == sorted(report.step or 0 for report in trials)
    assert {report.step for report in trials} == {0, 1, 2, 3, 4}
    assert all(report.max_steps == 4 for report in trials)
    assert max(report.running or 0 for report in trials) == 2
    last = trials[-1]
    assert (last.passed, last.failed, last.void, last.running, last.eta_seconds) == (0, 4, 0, 0, 0)
    assert [reporter.reports[0].phase, reporter.reports[-1].phase] == ["Preflight", "Score"]


async def test_each_attempt_has_its_own_seed(configure: Configure, local: EnvironmentChoice, model: StartModel) -> None:
    fake, url = await model(lazy)
    report = await run(configure(serverUrl=url, attempts=3), local)
    assert report.result["results"]["trials"] == 12
    assert {request["seed"] for request in fake.requests if "seed" in request} == {7, 8, 9}


async def test_a_better_run_is_called_better(
    configure: Configure, local: EnvironmentChoice, model: StartModel, dataset: Path
) -> None:
    from unit.agent.conftest import write_task

    for number in range(4, 8):
        write_task(dataset, f"task-{number}", file=f"done_{number}.txt")
    _, base = await model(lazy, name="base")
    baseline = configure(name="baseline", serverUrl=base, servedName="base", adapter=None, adapterDigest=None)
    await run(baseline, local)
    _, url = await model(obedient)
    config = configure(serverUrl=url, baselineName="baseline", baselinePath=baseline.output_path)
    report = await run(config, local)
    comparison = report.result["comparison"]
    assert comparison["verdict"] == "Better"
    assert (comparison["wins"], comparison["losses"], comparison["difference"]) == (8, 0, "1")
    assert float(comparison["interval"]["low"]) > 0
    assert artifact_of(config).comparison is not None
    assert len(report.to_termination_message().encode()) <= MAX_TERMINATION_BYTES


async def test_runs_of_other_attempts_are_not_comparable(configure: Configure, local: EnvironmentChoice) -> None:
    baseline = configure(name="baseline", agent={"name": "nop"})
    await run(baseline, local)
    fields = {"agent": {"name": "nop"}, "attempts": 2, "baselineName": "baseline"}
    report = await run(configure(**fields, baselinePath=baseline.output_path), local)
    assert report.result["comparison"]["verdict"] == "NotComparable"
    assert "spec.attempts: 2 here, 1 in the baseline" in report.result["comparison"]["message"]


async def test_a_baseline_without_result_is_waited_for(
    configure: Configure, local: EnvironmentChoice, tmp_path: Path
) -> None:
    with pytest.raises(RunFailure) as failure:
        await run(configure(baselineName="early", baselinePath=str(tmp_path / "none")), local)
    assert failure.value.outcome is Outcome.RETRY
    assert "'early'" in failure.value.message


async def test_the_same_recipe_is_adopted_and_not_measured_again(
    configure: Configure, local: EnvironmentChoice
) -> None:
    config = configure(agent={"name": "nop"})
    await run(config, local)
    first = artifact_of(config)
    report = await run(config, EnvironmentChoice(import_path="no.such:Environment", options={}))
    assert report.result["adopted"] is True
    assert report.reason == Reason.ADOPTED
    assert artifact_of(config) == first


async def test_finished_trials_survive_a_restart_and_void_ones_run_again(
    configure: Configure, local: EnvironmentChoice, dataset: Path
) -> None:
    config = configure(agent={"name": "oracle"})
    await run(config, local)
    output = Path(config.output_path)
    (output / "results.json").unlink()
    folder = Shard().folder(output, recipe_digest(config, admit_tasks(dataset, config.suite).tasks))
    trials = sorted(path for path in folder.iterdir() if path.is_dir())
    (trials[0] / "result.json").unlink()
    cancelled = json.loads((trials[1] / "result.json").read_text())
    cancelled["exception_info"] = {
        "exception_type": "CancelledError",
        "exception_message": "",
        "exception_traceback": "",
        "occurred_at": cancelled["finished_at"],
    }
    (trials[1] / "result.json").write_text(json.dumps(cancelled))
    report = await run(config, local)
    kept = {path.name for path in folder.iterdir() if path.is_dir()}
    assert {trials[2].name, trials[3].name} <= kept
    assert trials[0].name not in kept
    assert trials[1].name not in kept
    assert report.result["results"]["mean"] == "1"


async def test_a_sandbox_that_does_not_start_is_tried_again(
    configure: Configure, local: EnvironmentChoice, tmp_path: Path
) -> None:
    stubborn = replace(local, options={"fail_first": str(tmp_path / "marks")})
    report = await run(configure(agent={"name": "oracle"}), stubborn)
    assert report.result["results"]["mean"] == "1"
    assert report.result["results"]["void"] == 0


async def test_a_broken_model_server_makes_trials_void_and_not_failed(
    configure: Configure, local: EnvironmentChoice, model: StartModel
) -> None:
    fake, url = await model(obedient)
    config = configure(serverUrl=url, concurrency=1)

    def refuse_trials(messages: list[dict[str, str]]) -> str:
        fake.faults = [403] if "done_1" not in messages[-1]["content"] else fake.faults
        return obedient(messages)

    fake.mind = refuse_trials
    report = await run(config, local)
    results = report.result["results"]
    assert results["void"] > 0
    assert float(results["strictMean"]) < 1
    assert float(results["coverage"]) == pytest.approx(1 - results["void"] / 4)


async def test_a_conversation_that_outgrows_the_context_is_scored(
    configure: Configure, local: EnvironmentChoice, model: StartModel
) -> None:
    fake, url = await model(obedient)

    def overflow_next(messages: list[dict[str, str]]) -> str:
        if "touch" in (text := obedient(messages)):
            fake.faults = [400]
        return text

    fake.mind = overflow_next
    report = await run(configure(serverUrl=url, concurrency=1), local)
    assert (report.result["results"]["void"], report.result["results"]["mean"]) == (0, "1")


async def test_an_unknown_model_is_refused_with_what_is_served(
    configure: Configure, local: EnvironmentChoice, model: StartModel
) -> None:
    _, url = await model(obedient, name="other--00000000")
    with pytest.raises(RunFailure) as failure:
        await run(configure(serverUrl=url), local)
    assert failure.value.reason is Reason.MODEL_NOT_SERVED
    assert "base, other--00000000" in failure.value.message
    assert "spec.target" in failure.value.message


async def test_another_version_in_the_middle_of_a_run_ends_it(
    configure: Configure, local: EnvironmentChoice, model: StartModel
) -> None:
    fake, url = await model(obedient)

    def swap(messages: list[dict[str, str]]) -> str:
        if "done_2" in messages[-1]["content"]:
            fake.answers_as = "terminal--99999999"
        return obedient(messages)

    fake.mind = swap
    config = configure(serverUrl=url, concurrency=1)
    with pytest.raises(RunFailure) as failure:
        await run(config, local)
    assert failure.value.reason is Reason.TARGET_CHANGED
    assert "terminal--99999999" in failure.value.message
    assert not (Path(config.output_path) / "results.json").exists()


async def test_tasks_of_the_training_data_are_named(
    configure: Configure, local: EnvironmentChoice, dataset: Path, tmp_path: Path
) -> None:
    from unit.agent.conftest import write_task

    write_task(dataset, "seen", metadata='task_digest = "sha256:abc"')
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    lineage: dict[str, Any] = {
        "recipeDigest": "sha256:0",
        "recipe": {},
        "base": {"source": "pvc://m", "fingerprint": "sha256:0"},
        "datasets": [],
        "taskDigests": ["sha256:abc"],
        "objectUid": "u",
        "objectName": "t",
        "namespace": "team",
        "publishedAt": "2026-01-01T00:00:00Z",
    }
    (adapter / "lineage.json").write_text(json.dumps(lineage))
    report = await run(configure(agent={"name": "nop"}, adapterPath=str(adapter)), local)
    assert report.result["contaminated"] == ["seen"]
