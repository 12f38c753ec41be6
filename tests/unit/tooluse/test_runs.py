"""Runs of whole sets: resumed, counted, never overwritten; and the command."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from unit.agent.fake_model import FakeModel
from unit.tooluse.conftest import COMPANY, COMPANY_KEY, KEY, Service, call, instance
from whetstone_agent.tooluse.__main__ import main
from whetstone_agent.tooluse.agents import Agent, ScriptedAgent
from whetstone_agent.tooluse.api_client import ApiClient
from whetstone_agent.tooluse.conversation import Conversation, Protocol
from whetstone_agent.tooluse.env import ToolUseEnv
from whetstone_agent.tooluse.instances import check_instances
from whetstone_agent.tooluse.runs import AnotherRunError, RunSummary, read_run, run_set
from whetstone_agent.tooluse.world import World

ASK = call("getEmployee", id="e1")
RIGHT = call("FINAL", answer="ada@fern.example")
type Run = Callable[..., RunSummary]


@pytest.fixture
def run(world: World, service: Service, tmp_path: Path) -> Run:
    """Run six instances, every other of them without the API."""
    scenarios = ["both", "only_rag"] * 3
    tags = ["nested", "none", "nested", "none", "parallel"]
    rows = [
        instance(id=f"i{number}", toolAvailability=one, tags=tags[number : number + 1])
        for number, one in enumerate(scenarios)
    ]
    instances = check_instances(rows, "test.json")
    headers = {"Authorization": KEY}

    def make_env() -> ToolUseEnv:
        api = ApiClient(service.url, headers=headers, timeout_seconds=10, pauses_seconds=())
        return ToolUseEnv(instances, world, api=api)

    def start(agent: Agent, **fields: Any) -> RunSummary:
        asked = {"model": "m", **fields.pop("asked", {})}
        return run_set(
            instances, tmp_path / "out", make_env=make_env, agent=agent, asked=asked, protocol=Protocol.TEXT, **fields
        )

    return start


class Counting:
    """A script that counts the episodes it begins, and may crash in one of them."""

    def __init__(self, *texts: str, crash_at: int | None = None) -> None:
        self.begun = 0
        self.texts, self.crash_at = texts, crash_at

    def agent(self) -> ScriptedAgent:
        return ScriptedAgent(self._reply)

    def _reply(self, conversation: Conversation) -> dict[str, Any]:
        said = sum(one["role"] == "assistant" for one in conversation.messages)
        self.begun += said == 0
        if said == 0 and self.begun == self.crash_at:
            raise RuntimeError("killed")
        return {"role": "assistant", "content": self.texts[said]}


def test_figures_are_of_what_the_agent_did(run: Run, tmp_path: Path) -> None:
    summary = run(Counting(ASK, RIGHT).agent())
    assert (summary.instances, summary.void, summary.success.successes, summary.success.rate) == (6, 0, 3, 0.5)
    assert summary.success.low is not None
    assert summary.success.high is not None
    assert 0 < summary.success.low < 0.5 < summary.success.high < 1
    rates = {name: (one.scored, one.rate) for name, one in summary.by_scenario.items()}
    assert rates == {"both, answerable": (3, 1.0), "only_rag, not answerable": (3, 0.0)}
    rungs = {name: (one.scored, one.rate) for name, one in summary.by_rung.items()}
    assert rungs == {"none": (2, 0.0), "parallel": (1, 1.0), "nested": (2, 1.0)}
    assert summary.ends == {"Final": 6}
    assert summary.steps == {"Correct": 3, "Helpful": 3, "ShouldDecline": 3, "UnavailableTool": 3}
    assert json.loads((tmp_path / "out" / "results.json").read_text())["success"]["successes"] == 3
    assert len((tmp_path / "out" / "collect" / "sft.jsonl").read_text().splitlines()) == 3


def test_several_at_a_time_give_the_same(run: Run) -> None:
    summary = run(Counting(ASK, RIGHT).agent(), concurrency=4)
    assert (summary.instances, summary.success.successes) == (6, 3)


def test_a_killed_run_goes_on_where_it_was(run: Run, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="killed"):
        run(Counting(ASK, RIGHT, crash_at=4).agent())
    assert [one.sample_id for one in read_run(tmp_path / "out")] == ["i0", "i1", "i2"]
    assert not (tmp_path / "out" / "results.json").exists()
    rest = Counting(ASK, RIGHT)
    assert run(rest.agent()).instances == 6
    assert rest.begun == 3


def test_an_episode_whose_file_is_half_written_is_run_again(run: Run, tmp_path: Path) -> None:
    run(Counting(ASK, RIGHT).agent())
    place = tmp_path / "out" / "episodes" / "00002.json"
    place.write_text(place.read_text()[:100])
    again = Counting(ASK, RIGHT)
    run(again.agent())
    assert again.begun == 1


def test_void_episodes_are_counted_apart_and_tried_again(run: Run, service: Service) -> None:
    service.broken = "failing"
    summary = run(Counting(ASK, RIGHT).agent())
    assert (summary.void, summary.success.scored, summary.ends) == (3, 3, {"ApiUnavailable": 3, "Final": 3})
    service.broken = None
    again = Counting(ASK, RIGHT)
    assert (run(again.agent()).void, again.begun) == (0, 3)


def test_another_run_is_never_overwritten(run: Run, tmp_path: Path) -> None:
    run(Counting(ASK, RIGHT).agent())
    before = (tmp_path / "out" / "results.json").read_text()
    with pytest.raises(AnotherRunError, match="model is 'm' there and 'n' here"):
        run(Counting(RIGHT, RIGHT).agent(), asked={"model": "n"})
    assert (tmp_path / "out" / "results.json").read_text() == before


def command(out: Path, url: str, *more: str, split: str = "test") -> list[str]:
    place = ["--world", str(COMPANY), "--instances", str(COMPANY / f"{split}.json"), "--out", str(out)]
    return ["run", *place, "--api-url", url, "--api-key-env", "COMPANY_KEY", *more]


def test_the_command_collects_an_experts_runs_of_the_company(
    company_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COMPANY_KEY", COMPANY_KEY)
    assert main(command(tmp_path / "out", company_url, "--expert", "GroundTruth", split="train")) == 0
    summary = json.loads((tmp_path / "out" / "results.json").read_text())
    assert (summary["success"]["rate"], summary["void"]) == (1.0, 0)
    rows = (tmp_path / "out" / "collect" / "sft.jsonl").read_text().splitlines()
    assert len(rows) == summary["instances"] == len(json.loads((COMPANY / "train.json").read_text()))
    assert "all                                 1.000" in capsys.readouterr().out


async def test_the_command_runs_models_and_compares_them(
    company_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPANY_KEY", COMPANY_KEY)

    async def done(name: str, answer: str) -> dict[str, Any]:
        server = await FakeModel(name="m", mind=lambda _: answer).start()
        arguments = ["--model", "m", "--model-url", str(server.make_url("/v1"))]
        assert await asyncio.to_thread(main, command(tmp_path / name, company_url, *arguments)) == 0
        await server.close()
        return json.loads((tmp_path / name / "results.json").read_text())["success"]

    declines = await done("declines", "I cannot answer this with the tools that I have.")
    guesses = await done("guesses", "24")
    assert declines["successes"] > guesses["successes"]
    runs = [str(tmp_path / "declines"), str(tmp_path / "guesses")]
    assert main(["compare", *runs, "--out", str(tmp_path / "pairs.jsonl")]) == 0
    assert len((tmp_path / "pairs.jsonl").read_text().splitlines()) >= declines["successes"] - guesses["successes"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ([], "there is nobody to act"),
        (["--expert", "GroundTruth", "--alternates"], "there is nobody to act"),
        (["--expert", "Random", "--expert-epsilon", "2"], "expert: epsilon: "),
    ],
)
def test_a_command_that_makes_no_sense_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], more: list[str], said: str
) -> None:
    monkeypatch.setenv("COMPANY_KEY", COMPANY_KEY)
    assert main(command(tmp_path / "out", "http://127.0.0.1:9", *more)) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--api-key-env", "--judge-key-env", "--elasticsearch-authorization-env"])
def test_a_key_that_is_not_there_is_missed_before_anything_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    monkeypatch.setenv("COMPANY_KEY", COMPANY_KEY)
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    roles = ["--scorer", "Judge", "--judge-model", "m", "--elasticsearch-url", "http://127.0.0.1:9"]
    asked = command(tmp_path / "out", "http://127.0.0.1:9", "--expert", "GroundTruth", *roles, option, "NO_SUCH_KEY")
    assert main(asked) == 1
    assert f"{option}: the environment variable NO_SUCH_KEY is not set" in capsys.readouterr().err
    assert not (tmp_path / "out" / "episodes").exists()
