"""The check of a suite by its own solutions: real Harbor, real verifiers, local processes in place of pods."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from unit.agent.conftest import write_task
from unit.agent.test_run import RecordingReporter, artifact_of, run
from unit.agent.test_shards import run_shard, trials_in
from whetstone_agent.admission import admit_tasks
from whetstone_agent.failure import RunFailure
from whetstone_agent.harness import EnvironmentChoice
from whetstone_agent.oracle.verdicts import Verdicts, environment_digest
from whetstone_agent.recipe import recipe_digest
from whetstone_agent.run import run_benchmark
from whetstone_agent.tasks import suite_digest
from whetstone_api.benchmark_oracle import OracleVerdict
from whetstone_api.jobs import BenchmarkConfig
from whetstone_api.reports import Outcome
from whetstone_api.vocabulary import Reason, TaskRefusal

type Configure = Callable[..., BenchmarkConfig]
NOWHERE = EnvironmentChoice(import_path="no.such:Environment", options={})
"""A sandbox in which nothing can run."""


@pytest.fixture
def checked(configure: Configure, tmp_path: Path) -> Configure:
    """Make a configuration of a run that checks its suite and asks no model."""

    def make(*, refused: str = "Exclude", oracle: dict[str, Any] | None = None, **fields: Any) -> BenchmarkConfig:
        suite = {"dataset": {"uri": "pvc://data/tasks"}, "refused": refused, "oracle": oracle or {}}
        suite |= fields.pop("suite", {})
        return configure(
            **{
                "agent": {"name": "nop"},
                "suite": suite,
                "verdictsPath": str(tmp_path / "verdicts"),
                "verdictsUri": "pvc://data/verdicts",
                **fields,
            }
        )

    return make


def breaks(dataset: Path, name: str, script: str = "echo 'no such mirror'; exit 1") -> None:
    """Let a task's own solution do something else."""
    (dataset / name / "solution" / "solve.sh").write_text(f"#!/bin/bash\n{script}\n")


def solutions(config: BenchmarkConfig) -> list[str]:
    """Name the tasks whose solutions a run executed."""
    places = Path(config.output_path).glob("oracle/*/*/*/result.json")
    return sorted(place.parent.name.partition("__")[0] for place in places)


def verdict_files(config: BenchmarkConfig) -> list[Path]:
    return sorted(Path(str(config.verdicts_path)).glob("[0-9a-f]*.json"))


async def test_a_task_that_its_own_solution_does_not_solve_is_refused_and_the_others_are_scored(
    checked: Configure, local: EnvironmentChoice, dataset: Path
) -> None:
    breaks(dataset, "task-2")
    config = checked()
    report = await run(config, local)
    results = report.result["results"]
    assert (results["tasks"], results["trials"], results["mean"]) == (3, 3, "0")
    assert results["refused"] == [{"reason": "OracleFailed", "count": 1, "names": ["task-2"]}]
    assert {name.partition("__")[0] for name in trials_in(config)} == {"task-0", "task-1", "task-3"}
    told = {"solved": 3, "reused": 0, "withoutSolution": 0, "uri": "pvc://data/verdicts"}
    assert results["oracle"] == told
    (refused,) = artifact_of(config).refused
    assert refused.reason is TaskRefusal.ORACLE_FAILED
    assert "reward 0 here" in refused.message
    assert "its solution wrote: no such mirror" in refused.message
    place = refused.message.rpartition("(trial: pvc://data/results/candidate/")[2].rstrip(")")
    assert (Path(config.output_path) / place / "result.json").is_file()
    rest = [task for task in admit_tasks(dataset, config.suite).tasks if task.name != "task-2"]
    assert report.result["suiteDigest"] == suite_digest(rest)


async def test_a_run_that_may_refuse_nothing_fails_before_its_first_trial_and_names_the_task(
    checked: Configure, local: EnvironmentChoice, dataset: Path
) -> None:
    breaks(dataset, "task-2")
    config = checked(refused="Fail")
    with pytest.raises(RunFailure) as failure:
        await run(config, local)
    assert (failure.value.reason, failure.value.outcome) == (Reason.TASKS_INVALID, Outcome.FAILED)
    assert "task 'task-2': its own solution got reward 0 here" in failure.value.message
    assert "spec.suite.harbor.refused: Exclude" in failure.value.message
    assert not trials_in(config)


async def test_without_the_field_no_solution_is_run(
    configure: Configure, local: EnvironmentChoice, dataset: Path
) -> None:
    breaks(dataset, "task-2")
    config = configure(agent={"name": "nop"})
    report = await run(config, local)
    assert report.result["results"]["tasks"] == 4
    assert "oracle" not in report.result["results"]
    assert solutions(config) == []


async def test_another_run_of_the_same_tasks_takes_the_verdicts_over(
    checked: Configure, local: EnvironmentChoice, dataset: Path
) -> None:
    breaks(dataset, "task-2")
    first = checked(name="first")
    await run(first, local)
    assert solutions(first) == ["task-0", "task-1", "task-2", "task-3"]
    second = checked(name="second", attempts=2)
    report = await run(second, local)
    assert solutions(second) == []
    assert report.result["results"]["oracle"]["reused"] == 4
    assert artifact_of(second).refused == artifact_of(first).refused
    assert artifact_of(second).comparability.suite_digest == artifact_of(first).comparability.suite_digest


async def test_only_what_changed_is_run_again(checked: Configure, local: EnvironmentChoice, dataset: Path) -> None:
    breaks(dataset, "task-2")
    await run(checked(name="first"), local)
    breaks(dataset, "task-2", 'touch "$SANDBOX/app/done_2.txt"')
    mended = checked(name="mended")
    report = await run(mended, local)
    assert solutions(mended) == ["task-2"]
    assert report.result["results"]["tasks"] == 4
    assert report.result["results"]["oracle"] == {
        "solved": 4,
        "reused": 3,
        "withoutSolution": 0,
        "uri": "pvc://data/verdicts",
    }


def test_a_verdict_is_about_files_images_and_sandbox_and_about_nothing_else(
    checked: Configure, dataset: Path, tmp_path: Path
) -> None:
    def known(config: BenchmarkConfig) -> bool:
        task = admit_tasks(dataset, config.suite).tasks[0]
        return Verdicts(tmp_path / "verdicts", environment_digest(config)).find(task) is not None

    config = checked()
    task = admit_tasks(dataset, config.suite).tasks[0]
    verdict = {"task": "x", "digest": "x", "images": {}, "environment": "x", "reward": 1, "trial": "x"}
    kept = OracleVerdict.model_validate({**verdict, "objectName": "x", "finishedAt": "x"})
    Verdicts(tmp_path / "verdicts", environment_digest(config)).keep(task, kept)
    assert known(config)
    assert known(checked(name="other", attempts=3, agent={"name": "oracle"}, oracle={"minimumReward": "0.5"}))
    for suite in (
        {"images": {"prefix": "reg/m"}},
        {"trialResources": {"limits": {"memory": "1Gi"}}},
        {"environment": {"kind": "Process"}},
    ):
        assert not known(checked(suite=suite)), suite
    (dataset / "task-0" / "instruction.md").write_text("Something else.\n")
    assert not known(config)


async def test_the_minimum_reward_decides_what_solves_a_task(
    checked: Configure, local: EnvironmentChoice, dataset: Path
) -> None:
    (dataset / "task-1" / "tests" / "test.sh").write_text('echo 0.6 >"$SANDBOX/logs/verifier/reward.txt"\n')
    strict, lenient = checked(name="strict"), checked(name="lenient", oracle={"minimumReward": "0.6"})
    report = await run(strict, local)
    assert report.result["results"]["refused"][0]["names"] == ["task-1"]
    report = await run(lenient, local)
    assert (report.result["results"]["tasks"], report.result["results"]["oracle"]["reused"]) == (4, 4)


async def test_tasks_without_a_solution_are_run_and_named_unless_the_run_leaves_them_out(
    checked: Configure, local: EnvironmentChoice, dataset: Path
) -> None:
    (dataset / "task-3" / "solution" / "solve.sh").unlink()
    config = checked(name="kept", refused="Fail")
    report = await run(config, local)
    results = report.result["results"]
    assert (results["tasks"], results["oracle"]["solved"], results["oracle"]["withoutSolution"]) == (4, 3, 1)
    assert results["oracle"]["names"] == ["task-3"]
    assert artifact_of(config).without_solution == ["task-3"]
    report = await run(checked(name="left", oracle={"withoutSolution": "Exclude"}), local)
    assert report.result["results"]["refused"] == [{"reason": "NoSolution", "count": 1, "names": ["task-3"]}]
    assert report.result["results"]["tasks"] == 3


async def test_a_task_of_steps_is_checked_over_all_of_them(
    checked: Configure, local: EnvironmentChoice, dataset: Path
) -> None:
    for name, broken in (("whole", False), ("half", True)):
        folder = write_task(dataset, name)
        (folder / "solution" / "solve.sh").unlink()
        with (folder / "task.toml").open("a") as stream:
            stream.write('\n[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n')
        for step in ("one", "two"):
            place = folder / "steps" / step
            for part in ("tests", "solution"):
                (place / part).mkdir(parents=True)
            (place / "instruction.md").write_text(f"Create the file {step}.txt.\n")
            (place / "tests" / "test.sh").write_text(
                f'cd "$SANDBOX/app"\n[ -e {step}.txt ] && reward=1 || reward=0\n'
                'echo $reward >"$SANDBOX/logs/verifier/reward.txt"\n'
            )
            does = "true" if broken and step == "two" else f'touch "$SANDBOX/app/{step}.txt"'
            (place / "solution" / "solve.sh").write_text(f"#!/bin/bash\n{does}\n")
    report = await run(checked(), local)
    assert report.result["results"]["refused"] == [{"reason": "OracleFailed", "count": 1, "names": ["half"]}]
    assert report.result["results"]["tasks"] == 5


async def test_a_sandbox_that_does_not_start_is_no_verdict(
    checked: Configure, local: EnvironmentChoice, tmp_path: Path
) -> None:
    stubborn = replace(local, options={"fail_first": str(tmp_path / "marks")})
    report = await run(checked(), stubborn)
    assert report.result["results"]["oracle"]["solved"] == 4


async def test_solutions_that_cannot_be_tried_are_told_apart_and_leave_no_verdict(
    checked: Configure, local: EnvironmentChoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whetstone_agent.harness.VOID_RETRIES", 0)
    never = replace(local, options={"fail_always": "task-1"})
    config = checked()
    report = await run(config, never)
    assert report.result["results"]["refused"] == [{"reason": "OracleVoid", "count": 1, "names": ["task-1"]}]
    (refused,) = artifact_of(config).refused
    assert "PodStartError" in refused.message
    assert len(verdict_files(config)) == 3
    with pytest.raises(RunFailure) as failure:
        await run(checked(name="strict", refused="Fail"), never)
    assert failure.value.outcome is Outcome.RETRY


async def test_a_verifier_that_cannot_install_what_it_needs_is_a_verdict(
    checked: Configure, local: EnvironmentChoice, dataset: Path
) -> None:
    (dataset / "task-1" / "tests" / "test.sh").write_text(
        "echo 'curl: (6) Could not resolve host: astral.sh'\necho 0 >\"$SANDBOX/logs/verifier/reward.txt\"\n"
    )
    first, second = checked(name="first"), checked(name="second")
    await run(first, local)
    (refused,) = artifact_of(first).refused
    assert refused.reason is TaskRefusal.ORACLE_FAILED
    assert "VerifierSetupError" in refused.message
    assert "Could not resolve host: astral.sh" in refused.message
    report = await run(second, local)
    assert (report.result["results"]["oracle"]["reused"], solutions(second)) == (4, [])


async def test_a_suite_of_which_nothing_is_left_has_no_score(
    checked: Configure, local: EnvironmentChoice, dataset: Path
) -> None:
    for number in range(4):
        breaks(dataset, f"task-{number}")
    with pytest.raises(RunFailure) as failure:
        await run(checked(), local)
    assert failure.value.reason is Reason.TASKS_INVALID
    assert "no task is left, all 4 are refused" in failure.value.message


async def test_each_shard_checks_its_own_tasks_and_the_last_one_scores_over_all_that_are_left(
    checked: Configure, local: EnvironmentChoice, dataset: Path
) -> None:
    breaks(dataset, "task-0")
    breaks(dataset, "task-3")
    config = checked(shards=2, agent={"name": "oracle"})
    _, first = await run_shard(config, local, 0)
    assert solutions(config) == ["task-0", "task-2"]
    last, _ = await run_shard(config, local, 1)
    assert solutions(config) == ["task-0", "task-1", "task-2", "task-3"]
    results = last.result["results"]
    assert (results["tasks"], results["mean"], results["oracle"]["solved"]) == (2, "1", 2)
    assert results["refused"] == [{"reason": "OracleFailed", "count": 2, "names": ["task-0", "task-3"]}]
    assert [task.task for task in artifact_of(config).tasks] == ["task-1", "task-2"]
    trials = [report for report in first.reports if report.phase == "Trials"]
    assert trials[0].max_steps == 3


async def test_progress_says_that_solutions_are_run(
    checked: Configure, local: EnvironmentChoice, dataset: Path
) -> None:
    breaks(dataset, "task-2")
    reporter = RecordingReporter()
    await run_benchmark(checked(), reporter, local)  # type: ignore[arg-type]
    phases = list(dict.fromkeys(report.phase for report in reporter.reports))
    assert phases == ["Preflight", "Oracle", "Trials", "Score"]
    oracle = [report for report in reporter.reports if report.phase == "Oracle"]
    assert (oracle[0].step, oracle[0].max_steps, oracle[-1].step) == (0, 4, 4)
    assert (oracle[-1].passed, oracle[-1].failed, oracle[-1].running) == (3, 1, 0)


async def test_what_a_killed_runner_has_found_is_not_run_again(checked: Configure, local: EnvironmentChoice) -> None:
    config = checked(concurrency=1)

    class Killer(RecordingReporter):
        def send(self, report: Any) -> None:
            super().send(report)
            if report.phase == "Oracle" and report.step == 2:
                raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await run_benchmark(config, Killer(), local)  # type: ignore[arg-type]
    before = {path.name: path.read_bytes() for path in verdict_files(config)}
    assert len(before) == 2
    report = await run(config, local)
    assert report.result["results"]["oracle"] == {
        "solved": 4,
        "reused": 2,
        "withoutSolution": 0,
        "uri": "pvc://data/verdicts",
    }
    assert before.items() <= {path.name: path.read_bytes() for path in verdict_files(config)}.items()


async def test_a_solution_that_another_run_is_at_is_waited_for_and_not_run_twice(
    checked: Configure, local: EnvironmentChoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whetstone_agent.oracle.check._WAIT_SECONDS", 0.05)
    first, second = checked(name="first"), checked(name="second")
    await asyncio.gather(run(first, local), run(second, local))
    assert sorted([*solutions(first), *solutions(second)]) == ["task-0", "task-1", "task-2", "task-3"]


async def test_a_file_that_is_no_verdict_is_replaced(checked: Configure, local: EnvironmentChoice) -> None:
    first, second = checked(name="first"), checked(name="second")
    await run(first, local)
    broken = verdict_files(first)[0]
    broken.write_text("{")
    report = await run(second, local)
    assert report.result["results"]["oracle"]["reused"] == 3
    assert json.loads(broken.read_text())["reward"] == 1


async def test_a_run_that_is_created_again_adopts_its_result_though_the_verdicts_are_gone(
    checked: Configure, local: EnvironmentChoice, dataset: Path
) -> None:
    breaks(dataset, "task-2")
    config = checked()
    await run(config, local)
    for path in verdict_files(config):
        path.unlink()
    report = await run(config, NOWHERE)
    assert (report.result["adopted"], report.result["results"]["tasks"]) == (True, 3)


def test_what_is_asked_of_solutions_is_in_the_recipe_and_the_place_of_verdicts_is_not(
    checked: Configure, configure: Configure, dataset: Path
) -> None:
    def digest(config: BenchmarkConfig) -> str:
        return recipe_digest(config, admit_tasks(dataset, config.suite).tasks)

    plain = checked()
    elsewhere = checked(oracle={"verdicts": {"uri": "pvc://other/folder"}}, verdictsPath="/other")
    assert digest(plain) == digest(elsewhere) == digest(checked(oracle={"minimumReward": "1.0"}))
    others = [configure(agent={"name": "nop"}), checked(oracle={"minimumReward": "0.9"})]
    others.append(checked(oracle={"withoutSolution": "Exclude"}))
    assert len({digest(one) for one in (plain, *others)}) == 4
