"""Judges, overseers and witnesses, behind an OpenAI-compatible endpoint (a stand-in answers)."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from unit.agent.fake_model import FakeModel, Mind
from unit.tooluse.conftest import COMPANY, COMPANY_KEY, MakeEnv, call, scripted
from whetstone_agent.agents.errors import ModelRefusedError
from whetstone_agent.tooluse.__main__ import main
from whetstone_agent.tooluse.agents import ModelSettings
from whetstone_agent.tooluse.agreement import agreement, read_labelled
from whetstone_agent.tooluse.conversation import Protocol
from whetstone_agent.tooluse.env import EnvironmentSettings
from whetstone_agent.tooluse.episode import Actor, EpisodeRecord, run_episode
from whetstone_agent.tooluse.expert import ExpertMode, ExpertSettings
from whetstone_agent.tooluse.judges import Judge, JudgeFailedError, JudgeUnclearError, yes_or_no
from whetstone_agent.tooluse.outcomes import End, StepCategory
from whetstone_agent.tooluse.scorers import ScorerName

TRAVEL = call("retrieve_documents", collection="handbook", query="who books trains")
BADGES = call("retrieve_documents", collection="handbook", query="badges")
LEAVE = call("retrieve_documents", collection="handbook", query="leave")
type Start = Callable[..., Awaitable[tuple[FakeModel, Judge]]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Start a stand-in for a judge's server; gives it and the judge."""
    servers, judges = [], []

    async def begin(mind: Mind, *, model: str = "judge", **fields: Any) -> tuple[FakeModel, Judge]:
        fake = FakeModel(name="judge", mind=mind, **fields)
        servers.append(await fake.start())
        settings = ModelSettings(url=str(servers[-1].make_url("/v1")), model=model)
        judges.append(Judge(settings, api_key="secret", retries=0))
        return fake, judges[-1]

    yield begin
    for judge in judges:
        judge.__exit__(None, None, None)
    for server in servers:
        await server.close()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("yes", True),
        ("No.", False),
        ("**Yes**", True),
        ("Yes, it means the same.", True),
        ("no\nIt is another value.", False),
        ("<think>no, wait</think>\nYes, it means the same.", True),
        ("It means the same, so yes.", True),
        ("No idea", None),
        ("perhaps", None),
        ("", None),
    ],
)
def test_yes_and_no_are_read(text: str, said: bool | None) -> None:
    assert yes_or_no(text) is said


async def test_the_judge_is_shown_question_accepted_answers_and_answer(start: Start) -> None:
    fake, judge = await start(lambda _: "yes")
    assert await asyncio.to_thread(judge.matches, "How {many}?", ["30", "thirty"], "30 days")
    (message,) = fake.requests[0]["messages"]
    assert "Question: How {many}?\nAccepted answers: 30 | thirty\nAnswer: 30 days\n" in message["content"]
    assert fake.keys == {"Bearer secret"}


async def test_a_judge_that_says_neither_is_asked_once_more_with_another_seed(start: Start) -> None:
    replies = iter(["perhaps", "no"])
    fake, judge = await start(lambda _: next(replies))
    assert await asyncio.to_thread(judge.declines, "How many?", "30") is False
    assert [one["seed"] for one in fake.requests] == [0, 1]


@pytest.mark.parametrize(
    ("fields", "mind", "error"),
    [
        ({}, "perhaps", JudgeUnclearError),
        ({"faults": [500]}, "yes", JudgeFailedError),
        ({"model": "other"}, "yes", ModelRefusedError),
    ],
)
async def test_what_a_judge_cannot_say_is_told_apart(
    start: Start, fields: dict[str, Any], mind: str, error: type[Exception]
) -> None:
    _, judge = await start(lambda _: mind, **fields)
    with pytest.raises(error):
        await asyncio.to_thread(judge.matches, "How many?", ["30"], "30")


async def judged(make_env: MakeEnv, judge: Judge, answer: str, **fields: Any) -> EpisodeRecord:
    env = make_env(EnvironmentSettings(scorer=ScorerName.JUDGE), judge=judge, **fields)
    agent = scripted(call("FINAL", answer=answer))
    return await asyncio.to_thread(run_episode, env, "i1", agent=agent, protocol=Protocol.TEXT)


def matcher(messages: list[dict[str, str]]) -> str:
    """A judge that knows the person's other name, and one way to decline."""
    asked = messages[0]["content"]
    return "yes" if "Answer: Ada's address" in asked or "Reply: Beyond me" in asked else "no"


@pytest.mark.parametrize(
    ("fields", "answer", "category"),
    [
        ({}, "Ada's address", StepCategory.CORRECT),
        ({}, "ada@fern.example", StepCategory.INCORRECT),
        ({}, "I cannot answer this.", StepCategory.WRONGLY_DECLINED),
        ({"toolAvailability": "only_rag"}, "Beyond me", StepCategory.CORRECT),
        ({"toolAvailability": "only_rag"}, "Ada's address", StepCategory.SHOULD_DECLINE),
    ],
)
async def test_the_judge_decides_and_the_rules_do_not(
    make_env: MakeEnv, start: Start, fields: dict[str, Any], answer: str, category: StepCategory
) -> None:
    _, judge = await start(matcher)
    record = await judged(make_env, judge, answer, **fields)
    assert (record.steps[0].category, record.success) == (category, category is StepCategory.CORRECT)


@pytest.mark.parametrize(
    ("fields", "mind", "end"),
    [({}, "perhaps", End.JUDGE_UNCLEAR), ({"faults": [500]}, "yes", End.JUDGE_FAILED)],
)
async def test_an_episode_without_a_verdict_is_void(
    make_env: MakeEnv, start: Start, fields: dict[str, Any], mind: str, end: End
) -> None:
    _, judge = await start(lambda _: mind, **fields)
    record = await judged(make_env, judge, "30")
    assert (record.end, record.void, record.success, record.truncated) == (end, True, False, True)
    assert record.steps[0].category is StepCategory.UNJUDGED


def test_the_scorer_judge_needs_a_judge(make_env: MakeEnv) -> None:
    with pytest.raises(ValueError, match="needs a judge"):
        make_env(EnvironmentSettings(scorer=ScorerName.JUDGE))


async def overseen(make_env: MakeEnv, overseer: Judge) -> EpisodeRecord:
    agent = scripted(BADGES, LEAVE, call("FINAL", answer="ada@fern.example"))
    return await asyncio.to_thread(
        run_episode, make_env(), "i1", agent=agent, protocol=Protocol.TEXT, overseer=overseer
    )


async def test_an_overseer_ends_what_is_hopeless(make_env: MakeEnv, start: Start) -> None:
    fake, overseer = await start(lambda messages: "yes" if "Step 2: " in messages[0]["content"] else "no")
    record = await overseen(make_env, overseer)
    assert (record.end, record.void, record.truncated, record.total_time_steps) == (End.HOPELESS, False, True, 2)
    shown = fake.requests[-1]["messages"][0]["content"]
    assert f"Step 1: {BADGES}\nResult: " in shown
    assert "books trains?" in shown


@pytest.mark.parametrize(("fields", "mind"), [({}, "perhaps"), ({"faults": [500] * 9}, "yes"), ({}, "no")])
async def test_an_overseer_that_says_nothing_ends_nothing_and_is_counted(
    make_env: MakeEnv, start: Start, fields: dict[str, Any], mind: str
) -> None:
    _, overseer = await start(lambda _: mind, **fields)
    record = await overseen(make_env, overseer)
    assert (record.end, record.success) == (End.FINAL, True)
    assert record.overseer_silent == (0 if mind == "no" else 2)


COLLECTIONS = sorted(path.stem for path in (COMPANY / "collections").glob("*.jsonl"))
OTHER_WAY = call("listEmployees", team="Harbour")
ANSWER = call("FINAL", answer="ada@fern.example")


async def witnessed(make_env: MakeEnv, witness: Judge, *said: str) -> EpisodeRecord:
    """Run an episode whose agent asks for the employees of the team, and in which the expert acts at last."""
    expert = ExpertSettings(mode=ExpertMode.INFORMED, initial_limit=0, recent_limit=1)
    env = make_env(witness=witness)
    return await asyncio.to_thread(run_episode, env, "i1", agent=scripted(*said), protocol=Protocol.TEXT, expert=expert)


async def test_the_expert_spares_a_call_whose_result_its_witness_has_seen(make_env: MakeEnv, start: Start) -> None:
    fake, witness = await start(lambda _: "yes")
    record = await witnessed(make_env, witness, TRAVEL, OTHER_WAY, BADGES)
    assert [(one.actor, one.category) for one in record.steps] == [
        (Actor.AGENT, StepCategory.EXPECTED),
        (Actor.AGENT, StepCategory.HELPFUL),
        (Actor.AGENT, StepCategory.UNHELPFUL),
        (Actor.EXPERT, StepCategory.CORRECT),
    ]
    [asked] = [one["messages"][0]["content"] for one in fake.requests]
    assert "books trains?" in asked
    assert f"Call of the solution: {call('getEmployee', id='e1')}\n" in asked
    assert f"Call of the agent: {OTHER_WAY}\nResult: " in asked
    assert "Ada Quill" in asked


@pytest.mark.parametrize(("fields", "mind"), [({}, "perhaps"), ({"faults": [500] * 9}, "yes"), ({}, "no")])
async def test_the_expert_makes_a_call_that_its_witness_has_not_seen(
    make_env: MakeEnv, start: Start, fields: dict[str, Any], mind: str
) -> None:
    _, witness = await start(lambda _: mind, **fields)
    record = await witnessed(make_env, witness, TRAVEL, OTHER_WAY, ANSWER)
    assert [(one.actor, one.category) for one in record.steps] == [
        (Actor.AGENT, StepCategory.EXPECTED),
        (Actor.AGENT, StepCategory.UNHELPFUL),
        (Actor.EXPERT, StepCategory.EXPECTED),
        (Actor.AGENT, StepCategory.CORRECT),
    ]
    assert record.witness_silent == (0 if mind == "no" else 1)


async def test_a_witness_is_asked_of_results_that_tell_something_alone(make_env: MakeEnv, start: Start) -> None:
    fake, witness = await start(lambda _: "yes")
    wrong = call("getEmployee", id="ada")
    record = await witnessed(make_env, witness, TRAVEL, wrong, TRAVEL, ANSWER)
    assert [one.category for one in record.steps][:2] == [StepCategory.EXPECTED, StepCategory.INVALID_ARGUMENTS]
    assert not fake.requests


async def test_agreement_with_a_labelled_set_is_measured(start: Start, tmp_path: Path) -> None:
    rows = [
        {"question": "q", "accepted": ["30"], "answer": "thirty", "right": True},
        {"question": "q", "accepted": ["30"], "answer": "31", "right": False},
        {"question": "q", "accepted": ["30"], "answer": "29", "right": False},
        {"question": "q", "accepted": ["30"], "answer": "maybe", "right": False},
        {"question": "q", "accepted": None, "answer": "no tools", "right": True},
    ]
    path = tmp_path / "judged.json"
    path.write_text(json.dumps(rows))

    def mind(messages: list[dict[str, str]]) -> str:
        asked = messages[0]["content"]
        said = asked.split("Answer: ")[-1].split("Reply: ")[-1].splitlines()[0]
        return {"thirty": "yes", "31": "yes", "29": "no", "maybe": "hm", "no tools": "yes"}[said]

    _, judge = await start(mind)
    found = await asyncio.to_thread(agreement, judge, read_labelled(path))
    assert (found.rows, found.agree, found.wrongly_right, found.wrongly_wrong, found.unclear) == (5, 3, 1, 0, 1)
    assert found.rate == pytest.approx(0.75)
    assert found.kappa == pytest.approx(0.5)


def test_the_labelled_answers_that_ship_have_both_labels_on_both_matters() -> None:
    rows = read_labelled(COMPANY / "judged.json")
    assert {(one.accepted is None, one.right) for one in rows} == {
        (True, True),
        (True, False),
        (False, True),
        (False, False),
    }
    assert len(rows) >= 20


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "judged.json: holds no labelled answer"),
        ('[{"question": "q", "answer": "a"}]', "judged.json: 0.right: Field required"),
        ('[{"question": "q", "answer": "a", "accepted": [], "right": true}]', "judged.json: 0.accepted: "),
    ],
)
def test_a_labelled_set_that_cannot_be_used_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    (tmp_path / "judged.json").write_text(text)
    assert main(["agreement", "--labelled", str(tmp_path / "judged.json"), "--judge-model", "m"]) == 1
    assert said in capsys.readouterr().err


async def test_the_command_measures_a_judge(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    _, judge = await start(lambda _: "yes")
    command = ["agreement", "--labelled", str(COMPANY / "judged.json"), "--judge-model", "judge"]
    assert await asyncio.to_thread(main, [*command, "--judge-url", judge.url]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = read_labelled(COMPANY / "judged.json")
    assert (found["agree"], found["wronglyRight"]) == (
        sum(one.right for one in rows),
        sum(not one.right for one in rows),
    )


async def test_a_run_by_a_judge_records_its_prompts(
    start: Start, tmp_path: Path, company_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPANY_KEY", COMPANY_KEY)
    rows = json.loads((COMPANY / "test.json").read_text())[:3]
    (tmp_path / "few.json").write_text(json.dumps(rows))
    _, judge = await start(lambda _: "yes")
    place = ["--world", str(COMPANY), "--instances", str(tmp_path / "few.json"), "--out", str(tmp_path / "out")]
    command = ["run", *place, "--api-url", company_url, "--api-key-env", "COMPANY_KEY", "--expert", "GroundTruth"]
    models = [
        "--judge-model",
        "judge",
        "--judge-url",
        judge.url,
        "--overseer-model",
        "judge",
        "--overseer-url",
        judge.url,
    ]
    assert await asyncio.to_thread(main, [*command, "--scorer", "Judge", *models]) == 0
    asked = json.loads((tmp_path / "out" / "run.json").read_text())
    assert "means the same" in asked["judge"]["prompts"]["Answer"]
    assert "hopeless" in asked["overseer"]["prompts"]["Hopeless"]
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    # The overseer, who says yes to everything, ends what takes more than one step.
    assert results["ends"]["Hopeless"] + results["ends"].get("Final", 0) == 3


@pytest.mark.parametrize("more", [["--scorer", "Judge"], ["--judge-model", "m"]])
def test_a_judge_and_its_scorer_need_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    place = ["--world", str(COMPANY), "--instances", str(COMPANY / "test.json"), "--out", str(tmp_path / "out")]
    command = ["run", *place, "--api-url", "http://127.0.0.1:9", "--expert", "GroundTruth", *more]
    assert main(command) == 1
    assert "give --judge-model with --scorer Judge" in capsys.readouterr().err


async def test_a_run_with_a_witness_records_its_prompt(
    start: Start, tmp_path: Path, company_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPANY_KEY", COMPANY_KEY)
    [row] = [one for one in json.loads((COMPANY / "test.json").read_text()) if len(one.get("trajectory", [])) > 1][:1]
    (tmp_path / "few.json").write_text(json.dumps([{**row, "toolAvailability": "both"}]))
    search = call("retrieve_documents", collection=COLLECTIONS[0], query="nothing of the kind")
    _, agent = await start(lambda _: search, model="judge")
    fake, witness = await start(lambda _: "yes")
    place = ["--world", str(COMPANY), "--instances", str(tmp_path / "few.json"), "--out", str(tmp_path / "out")]
    command = ["run", *place, "--api-url", company_url, "--api-key-env", "COMPANY_KEY", "--protocol", "Text"]
    models = ["--model", "judge", "--model-url", agent.url, "--witness-model", "judge", "--witness-url", witness.url]
    assert await asyncio.to_thread(main, [*command, "--expert", "Informed", *models]) == 0
    asked = json.loads((tmp_path / "out" / "run.json").read_text())
    assert "call of the solution is for" in asked["witness"]["prompts"]["Witnessed"]
    assert fake.requests


@pytest.mark.parametrize("mode", ["None", "GroundTruth"])
def test_a_witness_needs_an_expert_that_looks_at_the_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    place = ["--world", str(COMPANY), "--instances", str(COMPANY / "test.json"), "--out", str(tmp_path / "out")]
    command = ["run", *place, "--api-url", "http://127.0.0.1:9", "--expert", mode, "--witness-model", "m"]
    assert main(command) == 1
    assert "--expert Random or Informed" in capsys.readouterr().err
