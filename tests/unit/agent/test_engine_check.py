"""The runner asks whether the engines are the same, writes the answer down, and goes on without one."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from unit.agent.test_run import RecordingReporter, artifact_of
from whetstone_agent import run as run_module
from whetstone_agent.engine_check import check_engines
from whetstone_agent.harness import EnvironmentChoice
from whetstone_agent.run import run_benchmark
from whetstone_api.benchmark_target import EngineCheck
from whetstone_api.jobs import BenchmarkConfig

type Configure = Callable[..., BenchmarkConfig]
ENGINE = {"image": "engine:1", "settings": "sha256:1"}
CHANGE = "the engines changed during the run: image engine:1 -> engine:2"


class Operator:
    """Answers what it is told to; keeps what it was asked."""

    def __init__(self, *answers: int | dict[str, Any]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str | None, Any]] = []

    async def handle(self, request: web.Request) -> web.Response:
        self.asked.append((request.headers.get("Authorization"), await request.json()))
        answer = self.answers.pop(0)
        return web.Response(status=answer) if isinstance(answer, int) else web.json_response(answer)


async def ask(operator: Operator, configure: Configure, folder: Path) -> tuple[EngineCheck | None, list[float]]:
    app = web.Application()
    app.router.add_post("/check", operator.handle)
    server = TestServer(app)
    await server.start_server()
    (folder / "token").write_text("secret\n")
    config = configure(engine=ENGINE, engineCheckUrl=str(server.make_url("/check")))
    pauses: list[float] = []
    try:
        check = await asyncio.to_thread(check_engines, config, token_path=folder / "token", pause=pauses.append)
    finally:
        await server.close()
    return check, pauses


SAME = {"checkedAt": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("answers", "change", "pauses"),
    [
        ([SAME], None, 0),
        ([{**SAME, "change": CHANGE}], CHANGE, 0),
        ([503, {"no": "answer"}, {**SAME, "change": CHANGE}], CHANGE, 2),
    ],
)
async def test_the_operators_answer_is_taken_as_it_is(
    configure: Configure, tmp_path: Path, answers: list[Any], change: str | None, pauses: int
) -> None:
    operator = Operator(*answers)
    check, waited = await ask(operator, configure, tmp_path)
    assert check == EngineCheck(checked_at=SAME["checkedAt"], change=change)
    assert operator.asked[0] == ("Bearer secret", ENGINE)
    assert len(waited) == pauses


@pytest.mark.parametrize(("answers", "asked"), [([503] * 6, 6), ([403], 1)])
async def test_no_answer_is_none_after_a_bounded_time(
    configure: Configure, tmp_path: Path, answers: list[Any], asked: int
) -> None:
    operator = Operator(*answers)
    check, _ = await ask(operator, configure, tmp_path)
    assert (check, len(operator.asked)) == (None, asked)


async def test_who_adopts_a_spoiled_run_is_told(
    configure: Configure, local: EnvironmentChoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoiled = EngineCheck(checked_at=SAME["checkedAt"], change=CHANGE)
    monkeypatch.setattr(run_module, "check_engines", lambda _: spoiled)
    config = configure(agent={"name": "nop"}, engine=ENGINE)
    reporter: Any = RecordingReporter()
    first = await run_benchmark(config, reporter, local)
    monkeypatch.setattr(run_module, "check_engines", lambda _: None)
    again = await run_benchmark(config, reporter, local)
    assert again.result["adopted"]
    assert first.result["engineCheck"] == again.result["engineCheck"] == spoiled.to_wire()
    assert json.loads(artifact_of(config).to_json())["engineCheck"]["change"] == CHANGE
