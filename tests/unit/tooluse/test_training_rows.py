"""Episodes become rows, read here by what the trainer reads them with."""

from typing import Any

import pytest
from unit.tooluse.conftest import MakeEnv, call, native, scripted
from whetstone_agent.tooluse.agents import ScriptedAgent
from whetstone_agent.tooluse.conversation import Protocol
from whetstone_agent.tooluse.episode import EpisodeRecord, run_episode
from whetstone_agent.tooluse.expert import ExpertMode, ExpertSettings
from whetstone_agent.tooluse.training_rows import sft_rows, step_preferences, trajectory_preferences
from whetstone_api.training_preference import Granularity
from whetstone_artifacts.data.formats import to_messages, to_tools
from whetstone_artifacts.data.pairs import to_pair

SEARCH = call("retrieve_documents", collection="handbook", query="who books trains")
ASK = call("getEmployee", id="e1")
ANSWER = call("FINAL", answer="ada@fern.example")
WRONG = call("FINAL", answer="bob@fern.example")


def ran(
    make_env: MakeEnv,
    *texts: str,
    mode: ExpertMode = ExpertMode.NONE,
    protocol: Protocol = Protocol.TEXT,
    **fields: Any,
) -> EpisodeRecord:
    expert = ExpertSettings(mode=mode, alternates=mode is ExpertMode.INFORMED)
    agent = scripted(*texts) if texts else None
    return run_episode(make_env(**fields), "i1", agent=agent, expert=expert, protocol=protocol)


@pytest.mark.parametrize("protocol", Protocol)
def test_an_experts_episode_is_a_row_that_the_trainer_reads(make_env: MakeEnv, protocol: Protocol) -> None:
    record = ran(make_env, mode=ExpertMode.GROUND_TRUTH, protocol=protocol)
    (row,) = sft_rows([record])
    assert [one["role"] for one in to_messages(row)] == [one["role"] for one in record.messages]
    assert len(to_tools(row) or []) == (4 if protocol is Protocol.NATIVE else 0)
    assert (row["reward"], row["task"], row["taskName"]) == (1.0, record.task, "i1")


def test_a_task_is_its_question_whatever_tools_were_there(make_env: MakeEnv) -> None:
    records = [
        ran(make_env, ANSWER),
        ran(make_env, ANSWER, toolAvailability="only_rag"),
        ran(make_env, ANSWER, question="Whose?"),
    ]
    assert records[0].task == records[1].task != records[2].task


def test_only_successes_are_imitated_and_bad_steps_in_them_are_marked(make_env: MakeEnv) -> None:
    good, bad = ran(make_env, "hm", SEARCH, ASK, ANSWER), ran(make_env, WRONG)
    (row,) = sft_rows([bad, good])
    said = [one for one in row["messages"] if one["role"] == "assistant"]
    assert [one.get("suboptimal") for one in said] == [True, None, None, None]


def test_each_step_at_which_the_agent_went_wrong_is_a_pair(make_env: MakeEnv) -> None:
    record = ran(make_env, SEARCH, "hm", "hm again", "still", WRONG, mode=ExpertMode.INFORMED)
    assert record.expert_assistance.tracker == [0, 0, 0, 1, 0]
    pairs = [to_pair(row, Granularity.STEP) for row in step_preferences([record])]
    sides = [(one.chosen[0]["content"], one.rejected[0]["content"]) for one in pairs]
    assert sides == [(ASK, "hm"), (ASK, "hm again"), (ASK, "still"), (ANSWER, WRONG)]
    assert [len(one.prompt) for one in pairs] == [4, 6, 8, 10]


def test_native_pairs_hold_calls_and_tools(make_env: MakeEnv) -> None:
    agent = ScriptedAgent(lambda _: native("getEmployee", id="e7"))
    settings = ExpertSettings(mode=ExpertMode.INFORMED, alternates=True)
    record = run_episode(make_env(), "i1", agent=agent, expert=settings)
    row = next(step_preferences([record]))
    pair = to_pair(row, Granularity.STEP)
    assert pair.chosen[0]["tool_calls"][0]["function"]["name"] == "retrieve_documents"
    assert len(to_tools(row) or []) == 4


def test_where_both_are_right_or_the_episode_is_void_there_is_no_pair(make_env: MakeEnv) -> None:
    other_words = call("retrieve_documents", collection="handbook", query="books trains team")
    assert list(step_preferences([ran(make_env, other_words, ASK, ANSWER, mode=ExpertMode.INFORMED)])) == []
    record = ran(make_env, "hm", "hm", WRONG, mode=ExpertMode.INFORMED)
    assert list(step_preferences([record.model_copy(update={"void": True})])) == []


def test_two_agents_on_one_instance_are_a_pair_from_where_they_part(make_env: MakeEnv) -> None:
    better, worse = ran(make_env, SEARCH, "hm", ASK, ANSWER), ran(make_env, SEARCH, ASK, WRONG)
    for runs in ([[better], [worse]], [[worse], [better]]):
        (row,) = trajectory_preferences(runs)
        pair = to_pair(row, Granularity.TRAJECTORY)
        assert len(pair.prompt) == 4
        assert [one["content"] for one in pair.chosen if one["role"] == "assistant"] == ["hm", ASK, ANSWER]
        assert [one["content"] for one in pair.rejected if one["role"] == "assistant"] == [ASK, WRONG]
        marks = [
            [one.get("suboptimal") for one in row[side] if one["role"] == "assistant"]
            for side in ("chosen", "rejected")
        ]
        assert marks == [[True, None, None], [None, True]]


def test_native_calls_that_are_the_same_are_no_parting(make_env: MakeEnv) -> None:
    def run(answer: str) -> EpisodeRecord:
        replies = [native("getEmployee", id="e1"), {"role": "assistant", "content": answer}]
        agent = ScriptedAgent(lambda talk: replies[sum(one["role"] == "assistant" for one in talk.messages)])
        return run_episode(make_env(), "i1", agent=agent)

    (row,) = trajectory_preferences([[run("ada@fern.example")], [run("bob@fern.example")]])
    assert [one["content"] for one in (row["chosen"][0], row["rejected"][0])] == [
        "ada@fern.example",
        "bob@fern.example",
    ]


def test_without_a_difference_in_success_there_is_no_trajectory_pair(make_env: MakeEnv) -> None:
    good, bad = ran(make_env, ANSWER), ran(make_env, WRONG)
    assert list(trajectory_preferences([[good], [good]])) == []
    assert list(trajectory_preferences([[bad], [bad]])) == []
    assert list(trajectory_preferences([[good], [bad.model_copy(update={"void": True})]])) == []
