"""Figures from trajectories of real Harbor runs: our agent, whose exit codes are known, and terminus-2."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pyarrow.parquet as pq
from unit.agent.fake_model import FakeModel
from unit.agent.minds import Messages, typing
from unit.agent.test_run import RecordingReporter, artifact_of, obedient
from whetstone_agent.harness import EnvironmentChoice
from whetstone_agent.run import run_benchmark
from whetstone_api.jobs import BenchmarkConfig

type Configure = Callable[..., BenchmarkConfig]
type StartModel = Callable[..., Awaitable[tuple[FakeModel, str]]]


async def run(config: BenchmarkConfig, local: EnvironmentChoice) -> dict[str, object]:
    report = await run_benchmark(config, RecordingReporter(), local)  # type: ignore[arg-type]
    found: dict[str, object] = report.result["results"]["trajectories"]
    return found


def stumbling(messages: Messages) -> str:
    """Fail at first on the first two tasks; give up on the second."""
    if len(messages) == 1:  # the runner's check before the trials
        return "OK"
    first, last = messages[1]["content"], messages[-1]["content"]
    if last == first and ("done_0" in first or "done_1" in first):
        return "```bash\nexit 3\n```"
    if last.startswith("Exit code: 3") and "done_1" in first:
        return "DONE"
    return obedient(messages) if last.startswith("Exit code: 0") else obedient([{"role": "user", "content": first}])


async def test_our_agents_commands_are_counted_with_their_exit_codes(
    configure: Configure, local: EnvironmentChoice, model: StartModel
) -> None:
    _, url = await model(stumbling)
    config = configure(serverUrl=url)
    figures = await run(config, local)
    assert figures == {
        "commands": 5,
        "knownCommands": 5,
        "commandSuccess": "0.625",
        "commandTrials": 4,
        "turnsToSolve": "2.333333",
        "solvedTrials": 3,
        "recovery": "0.5",
        "failedCommandTrials": 2,
    }
    rows = pq.read_table(Path(config.output_path) / "trials.parquet").to_pylist()
    assert [(row["commands"], row["known_commands"], row["failed_commands"]) for row in rows] == [
        (2, 2, 1),
        (1, 1, 1),
        (1, 1, 0),
        (1, 1, 0),
    ]
    page = (Path(config.output_path) / "report.html").read_text()
    assert '<td class="n" data-run="1" data-figure="trajectories.recovery">0.5</td>' in page
    assert "2 commands, 1 of 2 with known exit code failed" in page


async def test_exit_codes_of_terminus_are_not_known_and_not_guessed(
    configure: Configure, local: EnvironmentChoice, model: StartModel
) -> None:
    _, url = await model(typing)
    config = configure(serverUrl=url, agent={"parameters": {"maxTokens": 99, "maxTurns": 60}})
    figures = await run(config, local)
    assert (figures["knownCommands"], figures["commandTrials"], figures["solvedTrials"]) == (0, 0, 4)
    assert figures["commands"] == 4
    assert {"commandSuccess", "recovery"} & set(figures) == set()
    turns = [trial.turns or 0 for task in artifact_of(config).tasks for trial in task.trials]
    assert float(str(figures["turnsToSolve"])) == sum(turns) / 4
