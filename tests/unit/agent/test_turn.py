"""A run that its queue has let start measures nothing before the operator gives it the turn."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from unit.agent.test_engine_check import Operator
from unit.agent.test_run import RecordingReporter, artifact_of, run
from whetstone_agent import run_end
from whetstone_agent.failure import RunFailure
from whetstone_agent.harness import EnvironmentChoice
from whetstone_agent.turn import await_turn
from whetstone_api.jobs import BenchmarkConfig
from whetstone_api.reports import Outcome

type Configure = Callable[..., BenchmarkConfig]
type Wait = Callable[[Operator], Awaitable[tuple[list[str], list[float]]]]
NOT_YET = {"granted": False, "heldBy": ["other"]}
NOW = {"granted": True}


@pytest.fixture
def wait(configure: Configure, tmp_path: Path) -> Wait:
    """Wait for the turn; return the phases that are reported, and the pauses."""

    async def ask(operator: Operator) -> tuple[list[str], list[float]]:
        app = web.Application()
        app.router.add_post("/turn", operator.handle)
        pauses: list[float] = []

        async def pause(seconds: float) -> None:
            pauses.append(seconds)
            assert len(pauses) < 30, "it waits for ever"

        async with TestServer(app) as server:
            (tmp_path / "token").write_text("secret\n")
            config = configure(turnUrl=str(server.make_url("/turn")))
            reporter: Any = RecordingReporter()
            await await_turn(config, reporter, token_path=tmp_path / "token", pause=pause)
        return [report.phase for report in reporter.reports], pauses

    return ask


async def test_run_whose_turn_it_is_goes_on_at_once(wait: Wait) -> None:
    operator = Operator(NOW)
    assert await wait(operator) == ([], [])
    assert operator.asked == [("Bearer secret", {})]


async def test_run_waits_while_another_one_measures_and_while_nobody_answers(wait: Wait) -> None:
    operator = Operator(NOT_YET, 503, {"no": "answer"}, *[NOT_YET] * 20, NOW)
    phases, pauses = await wait(operator)
    assert phases == ["WaitingForServer"]
    assert pauses == [5.0] * 23


@pytest.mark.parametrize("code", [400, 401, 403, 404])
async def test_pod_that_gets_no_answer_makes_room_for_another(wait: Wait, code: int) -> None:
    with pytest.raises(RunFailure, match=f"HTTP {code}") as failure:
        await wait(Operator(code))
    assert failure.value.outcome is Outcome.RETRY


async def test_no_trial_begins_before_the_turn_and_what_is_there_is_adopted_without(
    configure: Configure, local: EnvironmentChoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure(agent={"name": "oracle"})
    seen: list[bool] = []

    def trials() -> bool:
        return any(Path(config.output_path).glob("harbor/*/*/result.json"))

    async def turn(*_: Any) -> None:
        seen.append(trials())

    monkeypatch.setattr(run_end, "await_turn", turn)
    await run(config, local)
    assert artifact_of(config).results.trials
    await run(config, local)
    assert seen == [False]
