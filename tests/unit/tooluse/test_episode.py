"""Episodes of agents and experts, with who acted and what the other one would have done."""

import pytest
from unit.tooluse.conftest import MakeEnv, Service, call, native, scripted
from whetstone_agent.tooluse.agents import ContextOutgrownError, ModelFailedError, ScriptedAgent
from whetstone_agent.tooluse.conversation import Conversation, Protocol, Turn
from whetstone_agent.tooluse.env import EnvironmentSettings
from whetstone_agent.tooluse.episode import EpisodeRecord, run_episode
from whetstone_agent.tooluse.expert import ExpertMode, ExpertSettings
from whetstone_agent.tooluse.outcomes import End, StepCategory
from whetstone_agent.tooluse.training_rows import sft_rows
from whetstone_artifacts.data.formats import to_messages
from whetstone_artifacts.data.ladder import Rung, rung_of

SEARCH = call("retrieve_documents", collection="handbook", query="who books trains")
BADGES = call("retrieve_documents", collection="handbook", query="badges")
ASK = call("getEmployee", id="e1")
ANSWER = call("FINAL", answer="ada@fern.example")
TEXT = Protocol.TEXT


def expert(mode: ExpertMode, *, alternates: bool = False) -> ExpertSettings:
    return ExpertSettings(mode=mode, alternates=alternates)


def told(record: EpisodeRecord) -> list[str]:
    return [str(step.category) for step in record.steps]


@pytest.mark.parametrize("protocol", Protocol)
def test_the_expert_alone_solves_an_instance_without_any_model(make_env: MakeEnv, protocol: Protocol) -> None:
    record = run_episode(make_env(), "i1", agent=None, expert=expert(ExpertMode.GROUND_TRUTH), protocol=protocol)
    assert (record.success, record.end, record.expert_assistance.tracker) == (True, End.FINAL, [1, 1, 1])
    assert (record.sample_id, record.terminated, record.truncated, record.total_time_steps) == ("i1", True, False, 3)
    assert [one["role"] for one in record.messages[-2:]] == [
        "tool" if protocol is Protocol.NATIVE else "user",
        "assistant",
    ]


def test_an_agent_works_alone_in_native_calls(make_env: MakeEnv) -> None:
    replies = [
        native("retrieve_documents", collection="handbook", query="who books trains"),
        native("getEmployee", id="e1"),
        {"role": "assistant", "content": "ada@fern.example"},
    ]
    agent = ScriptedAgent(lambda talk: replies[sum(one["role"] == "assistant" for one in talk.messages)])
    record = run_episode(make_env(), "i1", agent=agent)
    assert (record.success, record.expert_assistance.tracker, told(record)) == (
        True,
        [0, 0, 0],
        ["Expected", "Expected", "Correct"],
    )


def test_informed_help_comes_when_the_agent_is_stuck_and_goes_when_it_is_not(make_env: MakeEnv) -> None:
    agent = scripted("hm", BADGES, "unread", ASK, ANSWER)
    record = run_episode(make_env(), "i1", agent=agent, expert=expert(ExpertMode.INFORMED), protocol=TEXT)
    assert record.expert_assistance.tracker == [0, 0, 1, 0, 0]
    assert told(record) == ["Malformed", "Unhelpful", "Expected", "Expected", "Correct"]
    assert record.steps[2].action == SEARCH


def test_the_other_ones_action_is_kept_where_it_differs(make_env: MakeEnv) -> None:
    agent = scripted(SEARCH, "hm", BADGES, call("FINAL", answer="x"))
    settings = expert(ExpertMode.INFORMED, alternates=True)
    record = run_episode(make_env(), "i1", agent=agent, expert=settings, protocol=TEXT)
    others = [(one.alternate.actor, one.alternate.category) if one.alternate else None for one in record.steps]
    assert record.expert_assistance.tracker == [0, 0, 0, 1, 0]
    assert others[:4] == [
        None,
        ("Expert", StepCategory.EXPECTED),
        ("Expert", StepCategory.EXPECTED),
        ("Agent", StepCategory.INCORRECT),
    ]


def test_nothing_is_kept_and_nobody_asked_unless_it_is_wanted(make_env: MakeEnv) -> None:
    def fail(_: Conversation) -> dict[str, str]:
        raise AssertionError("the agent was asked")

    record = run_episode(make_env(), "i1", agent=ScriptedAgent(fail), expert=expert(ExpertMode.GROUND_TRUTH))
    assert [one.alternate for one in record.steps] == [None] * 3


def test_what_an_alternate_would_be_is_known_without_calling_the_api(make_env: MakeEnv, service: Service) -> None:
    env = make_env()
    foreseen = [
        env.foresee(one) for one in (SEARCH, BADGES, ASK, call("getEmployee", id="e2"), ANSWER, "hm", call("x"))
    ]
    assert foreseen == [
        StepCategory.EXPECTED,
        StepCategory.UNHELPFUL,
        StepCategory.HELPFUL,
        StepCategory.UNHELPFUL,
        StepCategory.CORRECT,
        StepCategory.MALFORMED,
        StepCategory.UNKNOWN_TOOL,
    ]
    assert service.requests == []
    assert env.step(SEARCH)[4]["category"] is StepCategory.EXPECTED
    assert env.foresee(SEARCH) is StepCategory.REPEATED


def test_an_instance_that_cannot_be_answered_wants_the_expert_to_say_so(make_env: MakeEnv) -> None:
    env = make_env(toolAvailability="only_rag")
    record = run_episode(env, "i1", agent=None, expert=expert(ExpertMode.GROUND_TRUTH))
    assert (record.success, record.answerable, record.total_time_steps) == (True, False, 1)


class Failing:
    """An agent that fails."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def act(self, conversation: Conversation) -> Turn:
        raise self._error


@pytest.mark.parametrize(
    ("error", "end", "void"),
    [
        (ContextOutgrownError("too long"), End.CONTEXT_LENGTH, False),
        (ModelFailedError("the server is down"), End.MODEL_FAILED, True),
    ],
)
def test_a_model_that_does_not_answer_ends_the_episode(
    make_env: MakeEnv, error: Exception, end: End, void: bool
) -> None:
    record = run_episode(make_env(), "i1", agent=Failing(error))
    assert (record.end, record.void, record.truncated, record.success) == (end, void, True, False)
    assert record.error == (str(error) if void else None)


def test_a_failing_api_voids_and_a_horizon_does_not(make_env: MakeEnv, service: Service) -> None:
    env = make_env(EnvironmentSettings(horizon=2))
    record = run_episode(env, "i1", agent=scripted(SEARCH, BADGES), protocol=TEXT)
    assert (record.end, record.void, record.truncated) == (End.HORIZON, False, True)
    service.broken = "html"
    record = run_episode(env, "i1", agent=scripted(ASK), protocol=TEXT)
    assert (record.end, record.void, record.truncated) == (End.API_NOT_JSON, True, True)


@pytest.mark.parametrize("protocol", Protocol)
def test_further_questions_are_the_users_in_the_conversation(make_env: MakeEnv, protocol: Protocol) -> None:
    more = [
        {
            "question": "In which team?",
            "answers": ["Harbour"],
            "trajectory": [{"tool": "getEmployee", "args": {"id": "e1"}}],
        }
    ]
    env = make_env(followUps=more, tags=["multi-turn"])
    record = run_episode(env, "i1", agent=None, expert=expert(ExpertMode.GROUND_TRUTH), protocol=protocol)
    assert (record.success, told(record)) == (
        True,
        ["Expected", "Expected", "Correct", "Expected", "Correct"],
    )
    place = next(number for number, one in enumerate(record.messages) if one["content"] == "In which team?")
    assert [one["role"] for one in record.messages[place - 1 : place + 2]] == ["assistant", "user", "assistant"]
    (row,) = sft_rows([record])
    assert row["tags"] == ["multi-turn"]
    if protocol is Protocol.NATIVE:
        assert rung_of(to_messages(row)) is Rung.MULTI_TURN
