"""Agents by name in whole runs: real Harbor and its real terminus-2, a fake model server, local processes as pods."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from unit.agent.fake_model import FakeModel
from unit.agent.minds import endless, endless_typing, typing
from whetstone_agent.agents.catalog import agent_identity
from whetstone_agent.failure import RunFailure
from whetstone_agent.harness import EnvironmentChoice
from whetstone_agent.run import run_benchmark
from whetstone_api.benchmark_agent import AgentSpec
from whetstone_api.jobs import BenchmarkConfig
from whetstone_api.reports import Outcome, TerminationReport
from whetstone_api.vocabulary import Reason

type Configure = Callable[..., BenchmarkConfig]
type StartModel = Callable[..., Awaitable[tuple[FakeModel, str]]]


class SilentReporter:
    """Keeps nothing."""

    def send(self, report: object) -> None:
        pass


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """One task."""
    from unit.agent.conftest import write_task

    write_task(tmp_path / "tasks", "task-0", file="done_0.txt")
    return tmp_path / "tasks"


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whetstone_agent.agents.doorway.PAUSES_SECONDS", (0.0, 0.0))


async def run(config: BenchmarkConfig, environment: EnvironmentChoice) -> TerminationReport:
    return await run_benchmark(config, SilentReporter(), environment)  # type: ignore[arg-type]


def trial_result(config: BenchmarkConfig) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(trial_file(config, "result.json"))
    return found


def trial_file(config: BenchmarkConfig, path: str) -> str:
    return next(Path(config.output_path).glob(f"harbor/*/task-0__*/{path}")).read_text()


def spec(**fields: Any) -> AgentSpec:
    return AgentSpec.model_validate(fields)


def trial_calls(fake: FakeModel) -> list[dict[str, Any]]:
    """Return the calls of trials: the runner's own checks have no seed."""
    return [request for request in fake.requests if "seed" in request]


async def test_terminus_is_the_agent_of_a_run_that_names_none(
    configure: Configure, local: EnvironmentChoice, model: StartModel
) -> None:
    fake, url = await model(typing)
    config = configure(serverUrl=url, agent={"parameters": {"maxTokens": 99, "maxTurns": 60}})
    report = await run(config, local)
    assert report.result["results"]["mean"] == "1"
    result = trial_result(config)
    assert result["agent_info"]["name"] == "terminus-2"
    calls = len(trial_calls(fake))
    assert result["agent_result"]["metadata"]["model"]["calls"] == calls
    assert report.result["results"]["completionTokens"] == 3 * calls
    assert {(one["seed"], one["temperature"], one["top_p"], one["max_tokens"]) for one in trial_calls(fake)} == {
        (7, 0, 0.9, 99)
    }
    assert not any("summar" in call["messages"][-1]["content"].lower() for call in trial_calls(fake))
    assert len(result["agent_result"]["metadata"]["all_messages"]) == 2 * calls
    assert "touch done_0.txt" in trial_file(config, "agent/trajectory.json")


async def test_terminus_stops_at_its_turns(configure: Configure, local: EnvironmentChoice, model: StartModel) -> None:
    fake, url = await model(endless_typing)
    await run(configure(serverUrl=url, agent={"parameters": {"maxTurns": 2}}), local)
    assert len(trial_calls(fake)) == 2


async def test_terminus_needs_to_know_the_models_length(
    configure: Configure, local: EnvironmentChoice, model: StartModel
) -> None:
    fake, url = await model(typing)
    fake.max_model_length = None
    with pytest.raises(RunFailure) as failure:
        await run(configure(serverUrl=url, agent={}), local)
    assert failure.value.reason is Reason.INVALID_SPEC
    assert "spec.agent.parameters.contextTokens" in failure.value.message
    report = await run(configure(serverUrl=url, agent={"parameters": {"contextTokens": 2048}}), local)
    assert report.result["results"]["mean"] == "1"


async def test_another_version_answering_terminus_ends_the_run(
    configure: Configure, local: EnvironmentChoice, model: StartModel
) -> None:
    fake, url = await model(typing)

    def swap(messages: list[dict[str, str]]) -> str:
        if "Create the file" in messages[0]["content"]:
            fake.answers_as = "terminal--99999999"
        return typing(messages)

    fake.mind = swap
    with pytest.raises(RunFailure) as failure:
        await run(configure(serverUrl=url, agent={}), local)
    assert failure.value.reason is Reason.TARGET_CHANGED
    assert "terminal--99999999" in failure.value.message


async def test_terminus_is_not_blamed_for_its_server(
    configure: Configure, local: EnvironmentChoice, model: StartModel
) -> None:
    fake, url = await model(typing)

    def break_down(messages: list[dict[str, str]]) -> str:
        if len(messages) == 1 and "Create the file" in messages[0]["content"]:
            # What the door's new tries, and the trial's, meet; the check after the trials is answered again.
            fake.faults = [500] * 9
        return typing(messages)

    fake.mind = break_down
    report = await run(configure(serverUrl=url, agent={}), local)
    results = report.result["results"]
    assert (results["void"], results["coverage"]) == (1, "0")


@pytest.mark.parametrize(("mind", "agent"), [(endless, "whetstone"), (endless_typing, "terminus-2")])
async def test_a_trial_ends_at_its_tokens_and_is_scored(
    configure: Configure, local: EnvironmentChoice, model: StartModel, mind: Any, agent: str
) -> None:
    fake, url = await model(mind)
    config = configure(serverUrl=url, agent={"name": agent, "budget": {"tokens": 30}})
    report = await run(config, local)
    assert (report.result["results"]["void"], report.result["results"]["mean"]) == (0, "0")
    # A call takes 13 tokens: the third one crosses the limit, and there is no fourth.
    assert len(trial_calls(fake)) == 3
    result = trial_result(config)
    assert result["exception_info"]["exception_type"] == "BudgetExceededError"
    assert "spec.agent.budget.tokens" in result["exception_info"]["exception_message"]


async def test_a_trial_ends_at_its_seconds_and_is_scored(
    configure: Configure, local: EnvironmentChoice, model: StartModel
) -> None:
    _, url = await model(lambda messages: "```bash\nsleep 30\n```")
    config = configure(serverUrl=url, agent={"name": "whetstone", "budget": {"wallClockSeconds": 1}})
    report = await run(config, local)
    assert (report.result["results"]["void"], report.result["results"]["mean"]) == (0, "0")
    error = trial_result(config)["exception_info"]
    assert error["exception_type"] == "BudgetExceededError"
    assert "spec.agent.budget.wallClockSeconds" in error["exception_message"]


async def test_a_run_out_of_tokens_ends_and_a_larger_budget_goes_on(
    configure: Configure, local: EnvironmentChoice, model: StartModel, dataset: Path
) -> None:
    from unit.agent.conftest import write_task

    write_task(dataset, "task-1", file="done_1.txt")
    fake, url = await model(lambda messages: "I would rather not.")

    def budgeted(tokens: int) -> BenchmarkConfig:
        agent = {"name": "whetstone", "budget": {"runTokens": tokens}}
        return configure(serverUrl=url, agent=agent, concurrency=1)

    with pytest.raises(RunFailure) as failure:
        await run(budgeted(13), local)
    assert (failure.value.reason, failure.value.outcome) == (Reason.BUDGET_EXCEEDED, Outcome.FAILED)
    assert "spec.agent.budget.runTokens" in failure.value.message
    with pytest.raises(RunFailure):
        await run(budgeted(13), local)
    before = len(trial_calls(fake))
    report = await run(budgeted(26), local)
    assert report.result["results"]["trials"] == 2
    assert (before, len(trial_calls(fake))) == (1, 2)


@pytest.mark.parametrize(
    ("agent", "field"),
    [
        ({"name": "terminus-2", "parameters": {"systemPrompt": "x"}}, "systemPrompt"),
        ({"name": "whetstone", "parameters": {"contextTokens": 99}}, "contextTokens"),
        ({"name": "oracle", "parameters": {"maxTurns": 3}}, "maxTurns"),
    ],
)
async def test_a_parameter_that_means_nothing_to_the_agent_is_refused(
    configure: Configure, local: EnvironmentChoice, agent: dict[str, Any], field: str
) -> None:
    with pytest.raises(RunFailure) as failure:
        await run(configure(agent=agent), local)
    assert failure.value.reason is Reason.INVALID_SPEC
    assert f"spec.agent.parameters.{field}" in failure.value.message


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        ({"options": {"no_such": "1"}}, "spec.agent.options.no_such: agent terminus-2 has no such option"),
        (
            {"options": {"tmux_pane_width": "wide"}},
            "spec.agent.options.tmux_pane_width: Input should be a valid integer",
        ),
        ({"options": {"temperature": "1"}}, "spec.agent.options.temperature: the runner sets it"),
        ({"name": "whetstone", "options": {"a": "b"}}, "spec.agent.options: agent whetstone has none"),
    ],
)
async def test_an_option_that_the_agent_cannot_take_is_refused(
    configure: Configure, local: EnvironmentChoice, agent: dict[str, Any], words: str
) -> None:
    with pytest.raises(RunFailure) as failure:
        await run(configure(agent=agent), local)
    assert failure.value.reason is Reason.INVALID_SPEC
    assert words in failure.value.message


async def test_options_reach_terminus(configure: Configure, local: EnvironmentChoice, model: StartModel) -> None:
    fake, url = await model(lambda _: "neither JSON nor XML")
    options = {"parser_name": "xml", "tmux_pane_width": "90"}
    config = configure(serverUrl=url, agent={"parameters": {"maxTurns": 1}, "options": options})
    await run(config, local)
    assert "<response>" in trial_calls(fake)[0]["messages"][0]["content"]
    assert agent_identity(config.agent)["options"] == {"parser_name": "xml", "tmux_pane_width": 90}


def repeating(messages: list[dict[str, str]]) -> str:
    """Give one command once, and another for ever."""
    return f"```bash\necho {min(len(messages), 3)}; printf 'x%.0s' $(seq 900)\n```"


async def test_whetstone_ends_when_a_command_repeats(
    configure: Configure, local: EnvironmentChoice, model: StartModel
) -> None:
    fake, url = await model(repeating)
    config = configure(serverUrl=url, agent={"name": "whetstone", "parameters": {"repeatedCommands": 3}})
    await run(config, local)
    assert trial_result(config)["agent_result"]["metadata"]["end"] == "Repeated"
    assert len(trial_calls(fake)) == 4


async def test_whetstone_shows_the_latest_turns_and_the_start_of_an_output(
    configure: Configure, local: EnvironmentChoice, model: StartModel
) -> None:
    fake, url = await model(repeating)
    parameters = {"historyTurns": 2, "observationCharacters": 30, "maxTurns": 5}
    await run(configure(serverUrl=url, agent={"name": "whetstone", "parameters": parameters}), local)
    shown = [request["messages"] for request in trial_calls(fake)]
    assert [len(messages) for messages in shown] == [2, 4, 6, 6, 6]
    assert shown[4][:2] == shown[0]
    assert shown[4][2:4] == shown[3][4:6]
    assert len(shown[1][-1]["content"]) == len("Exit code: 0\nOutput:\n") + 30


async def test_a_command_of_whetstone_ends_at_its_seconds(
    configure: Configure, local: EnvironmentChoice, model: StartModel
) -> None:
    fake, url = await model(lambda messages: "DONE" if len(messages) > 2 else "```bash\nsleep 60\n```")
    await run(configure(serverUrl=url, agent={"name": "whetstone", "parameters": {"commandSeconds": 1}}), local)
    assert trial_calls(fake)[1]["messages"][-1]["content"].startswith("Exit code: 124")


def test_the_recipe_of_a_run_that_uses_no_new_field_is_what_it_was() -> None:
    agent = spec(name="whetstone", parameters={"maxTurns": 3, "maxTokens": 64, "systemPrompt": "p"})
    assert agent_identity(agent) == {"name": "whetstone", "maxTurns": 3, "maxTokens": 64, "systemPrompt": "p"}
    assert agent_identity(spec(name="oracle")) == {"name": "oracle"}


def test_budgets_of_a_trial_are_of_the_recipe_and_that_of_the_run_is_not() -> None:
    plain, trial, whole = (
        agent_identity(spec(name="whetstone", **fields))
        for fields in ({}, {"budget": {"tokens": 5, "wallClockSeconds": 9}}, {"budget": {"runTokens": 5}})
    )
    assert plain == whole
    assert trial == {**plain, "budget": {"tokens": 5, "wallClockSeconds": 9}}
