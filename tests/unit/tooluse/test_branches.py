"""The other way from a step is gone to its end, and makes pairs of whole trajectories."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from unit.tooluse.conftest import MakeEnv, Service, call, scripted
from whetstone_agent.tooluse.agents import Agent
from whetstone_agent.tooluse.conversation import Protocol
from whetstone_agent.tooluse.env import ToolUseEnv
from whetstone_agent.tooluse.episode import EpisodeRecord, run_branches, run_episode
from whetstone_agent.tooluse.expert import ExpertMode, ExpertSettings
from whetstone_agent.tooluse.instances import Instance
from whetstone_agent.tooluse.outcomes import End
from whetstone_agent.tooluse.runs import read_branches, read_run, run_set
from whetstone_api.training_preference import Granularity
from whetstone_artifacts.data.pairs import to_pair

SEARCH = call("retrieve_documents", collection="handbook", query="who books trains")
ASK = call("getEmployee", id="e1")
ANSWER = call("FINAL", answer="ada@fern.example")
WRONG = call("FINAL", answer="bob@fern.example")
TEXT = Protocol.TEXT


def informed(branches: int = 2, **fields: Any) -> ExpertSettings:
    return ExpertSettings(mode=ExpertMode.INFORMED, alternates=True, branches=branches, **fields)


def ran(env: ToolUseEnv, agent: Agent, **fields: Any) -> tuple[EpisodeRecord, list[EpisodeRecord]]:
    record = run_episode(env, "i1", agent=agent, expert=informed(**fields), protocol=TEXT)
    return record, run_branches(env, record, agent=agent, limit=informed(**fields).branches)


def actions(record: EpisodeRecord) -> list[str]:
    return [one.action for one in record.steps]


def test_where_the_agent_went_wrong_the_expert_goes_on_to_the_end(make_env: MakeEnv) -> None:
    record, (branch,) = ran(make_env(), scripted(SEARCH, WRONG))
    assert (record.success, actions(record)) == (False, [SEARCH, WRONG])
    assert (branch.success, actions(branch), branch.branch_at) == (True, [SEARCH, ASK, ANSWER], 1)
    assert branch.expert_assistance.tracker == [0, 1, 1]
    assert branch.messages[:4] == record.messages[:4]


def test_where_the_expert_helped_the_agent_goes_on_alone_to_the_end(make_env: MakeEnv) -> None:
    agent = scripted("hm", "what", "still", ASK, ANSWER)
    record, branches = ran(make_env(), agent, branches=9)
    assert record.expert_assistance.tracker == [0, 0, 1, 0, 0]
    assert [one.branch_at for one in branches] == [0, 1, 2]
    own = branches[2]
    assert actions(own) == ["hm", "what", "still", ASK, ANSWER]
    assert own.expert_assistance.tracker == [0, 0, 0, 0, 0]


def test_branches_are_as_many_as_are_asked_for(make_env: MakeEnv) -> None:
    agent = scripted("hm", "what", "still", ASK, ANSWER)
    assert [len(ran(make_env(), agent, branches=many)[1]) for many in (1, 2)] == [1, 2]


def test_steps_on_which_both_are_right_have_no_branch(make_env: MakeEnv) -> None:
    other_words = call("retrieve_documents", collection="handbook", query="books trains team")
    assert ran(make_env(), scripted(other_words, ASK, ANSWER))[1] == []


def test_a_branch_that_meets_a_failing_api_is_void(make_env: MakeEnv, service: Service) -> None:
    env, agent = make_env(), scripted(SEARCH, WRONG)
    record = run_episode(env, "i1", agent=agent, expert=informed(), protocol=TEXT)
    service.broken = "failing"
    (branch,) = run_branches(env, record, agent=agent, limit=1)
    assert (branch.end, branch.void, branch.branch_at) == (End.API_UNAVAILABLE, True, 1)


def test_a_run_keeps_them_and_makes_pairs_of_whole_trajectories(make_env: MakeEnv, tmp_path: Path) -> None:
    env = make_env()
    instances: list[Instance] = [env.instance]

    def run(agent: Agent) -> None:
        run_set(instances, tmp_path, make_env=lambda: env, agent=agent, asked={}, expert=informed(), protocol=TEXT)

    run(scripted(SEARCH, WRONG))
    (row,) = map(json.loads, (tmp_path / "collect" / "preference-trajectory.jsonl").read_text().splitlines())
    pair = to_pair(row, Granularity.TRAJECTORY)
    assert [one["content"] for one in pair.chosen if one["role"] == "assistant"] == [ASK, ANSWER]
    assert [one["content"] for one in pair.rejected] == [WRONG]
    assert row["rejected"][0]["suboptimal"] is True
    before = (tmp_path / "collect" / "preference-trajectory.jsonl").read_text()
    run(scripted("not asked again"))
    assert (tmp_path / "collect" / "preference-trajectory.jsonl").read_text() == before
    assert [one.branch_at for one in read_branches(tmp_path, "00000")] == [1]
    assert [one.branch_at for one in read_run(tmp_path)] == [None]


@pytest.mark.parametrize("wrong", [{"mode": "None", "alternates": True}, {"mode": "Informed"}, {"branches": -1}])
def test_branches_need_an_expert_and_alternates(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="branches"):
        ExpertSettings.model_validate({"branches": 1, **wrong})
