"""How disciplined a run's agent worked, from conversations as Harbor leaves them."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.run_results import run_artifact
from unit.agent.test_run import RecordingReporter, artifact_of
from whetstone_agent.discipline import with_discipline
from whetstone_agent.harness import EnvironmentChoice
from whetstone_agent.run import run_benchmark
from whetstone_api.jobs import BenchmarkConfig
from whetstone_api.reports import MAX_TERMINATION_BYTES
from whetstone_api.run_artifact import RunArtifact, TaskScore, TrialScore

type Configure = Callable[..., BenchmarkConfig]
PLAN = ("next_phase_todos", {"todos": ["a", "b"]})
DONE = ("todo_complete", {"notes": "n"})
TICK = ("tick", {})


def leave(folder: Path, trials: Mapping[str, Sequence[tuple[str, Mapping[str, Any]]]], words: int = 1) -> RunArtifact:
    """Leave a trial of each task, which called these tools and then said so many words."""
    scores = []
    for task, calls in trials.items():
        steps: list[dict[str, Any]] = [{"source": "user", "message": f"Do {task}"}]
        for number, (name, arguments) in enumerate(calls):
            made = {"tool_call_id": f"c{number}", "function_name": name, "arguments": arguments}
            observed = {"results": [{"source_call_id": f"c{number}", "content": "ok"}]}
            steps.append({"source": "agent", "message": "", "tool_calls": [made], "observation": observed})
        steps.append({"source": "agent", "message": "word " * words})
        place = folder / "harbor" / "job" / f"{task}__a" / "agent"
        place.mkdir(parents=True)
        (place / "trajectory.json").write_text(json.dumps({"steps": steps}))
        scores.append(TaskScore(task=task, digest=task, trials=[TrialScore(trial=f"{task}__a", reward=1.0)]))
    return run_artifact(scores)


def test_a_run_is_told_by_the_rules_of_its_spec(tmp_path: Path, configure: Configure) -> None:
    artifact = leave(tmp_path, {"one": [PLAN, DONE, TICK], "two": [TICK]})
    usual = with_discipline(artifact, configure(outputPath=str(tmp_path), discipline={}), None)
    assert usual.results.discipline is not None
    assert (usual.results.discipline.trajectories, usual.results.discipline.success) == (2, "1")
    assert usual.results.discipline.todo_completion == "0.333333"
    assert usual.results.discipline.token_change is None
    assert {rung: one.trajectories for rung, one in usual.discipline.items()} == {"single": 1, "sequential": 1}
    rules = {"done": ["tick"], "nextPhase": ["next_phase_todos"]}
    named = with_discipline(usual, configure(outputPath=str(tmp_path), discipline=rules), None)
    assert named.results.discipline is not None
    assert named.results.discipline.todo_completion == "0.666667"
    plain = with_discipline(named, configure(outputPath=str(tmp_path)), None)
    assert (plain.results.discipline, plain.discipline) == (None, {})


def test_tokens_are_set_beside_those_of_the_baseline(tmp_path: Path, configure: Configure) -> None:
    ours, theirs = leave(tmp_path / "a", {"one": [], "more": []}, 30), leave(tmp_path / "b", {"one": []}, 40)
    config = configure(outputPath=str(tmp_path / "a"), baselinePath=str(tmp_path / "b"), discipline={})
    told = with_discipline(ours, config, theirs).results.discipline
    assert told is not None
    assert (told.tokens_per_task, told.token_change) == ("30", "-0.25")


def test_a_conversation_that_cannot_be_read_is_counted_apart(tmp_path: Path, configure: Configure) -> None:
    artifact = leave(tmp_path, {"one": [TICK], "two": [TICK]})
    broken = tmp_path / "harbor" / "job" / "two__a" / "agent" / "messages.jsonl"
    row = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "tool_calls": [{"function": 1}]}]}
    broken.write_text(json.dumps(row))
    told = with_discipline(artifact, configure(outputPath=str(tmp_path), discipline={}), None).results.discipline
    assert told is not None
    assert (told.trajectories, told.unread) == (1, 1)


async def test_a_whole_run_tells_discipline_and_the_rungs_that_its_tasks_are_tagged_with(
    configure: Configure, local: EnvironmentChoice, dataset: Path
) -> None:
    for number, tags in enumerate(['"nested"', '"nested", "x"', '"single"']):
        path = dataset / f"task-{number}" / "task.toml"
        path.write_text(path.read_text().replace("x = 1\n", f"tags = [{tags}]\n"))
    config = configure(agent={"name": "oracle"}, discipline={})
    report = await run_benchmark(config, RecordingReporter(), local)  # type: ignore[arg-type]
    results = report.result["results"]
    rows = [(one["rung"], one["tasks"], one["mean"], one["success"]) for one in results["rungs"]]
    assert rows == [("single", 1, "1", "1"), ("nested", 2, "1", "1")]
    assert "discipline" in results
    assert artifact_of(config).results.discipline is not None
    assert len(report.to_termination_message().encode()) <= MAX_TERMINATION_BYTES
    adopted = await run_benchmark(configure(agent={"name": "oracle"}), RecordingReporter(), local)  # type: ignore[arg-type]
    assert adopted.result["adopted"]
    assert "discipline" not in adopted.result["results"]


@pytest.mark.parametrize("tags", ['"nested"', "[1, 2]", "5"])
async def test_odd_tags_spoil_no_run(configure: Configure, local: EnvironmentChoice, dataset: Path, tags: str) -> None:
    path = dataset / "task-0" / "task.toml"
    path.write_text(path.read_text().replace("x = 1\n", f"tags = {tags}\n"))
    report = await run_benchmark(configure(agent={"name": "nop"}), RecordingReporter(), local)  # type: ignore[arg-type]
    assert "rungs" not in report.result["results"]
