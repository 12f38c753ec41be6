"""Episodes: Gymnasium's interface, what each step was worth, and an outcome for everything that can go wrong."""

import json
from typing import Any

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env
from unit.tooluse.conftest import KEY, MakeEnv, Service, call
from whetstone_agent.tooluse.api_tools import Mode
from whetstone_agent.tooluse.env import EnvironmentSettings, ToolUseEnv
from whetstone_agent.tooluse.outcomes import End, StepCategory
from whetstone_agent.tooluse.scorers import UNABLE
from whetstone_agent.tooluse.toolbox import ToolSettings, TopKBy

SEARCH = call("retrieve_documents", collection="handbook", query="who books trains")
ASK = call("getEmployee", id="e1")
POLICY = {"toolUsage": "Do not look up employees.", "forbidden": {"operations": ["getEmployee"]}}


def categories(env: ToolUseEnv, *actions: str) -> list[Any]:
    return [env.step(action)[4]["category"] for action in actions]


@pytest.mark.filterwarnings("error::UserWarning")
def test_it_passes_the_checker_of_gymnasium(make_env: MakeEnv) -> None:
    check_env(make_env(), skip_render_check=True)


def test_a_search_a_call_and_the_answer_succeed(make_env: MakeEnv) -> None:
    env = make_env()
    found, *_ = env.step(SEARCH)
    assert json.loads(found)["documents"][0]["id"] == "travel"
    answered, reward, *_ = env.step(ASK)
    assert (json.loads(answered)["email"], reward) == ("ada@fern.example", 0.0)
    _, reward, terminated, truncated, info = env.step(call("FINAL", answer="ada@fern.example"))
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert (info["end"], info["success"], info["category"]) == (End.FINAL, True, StepCategory.CORRECT)


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize(
    "fields",
    [{}, {"toolAvailability": "only_rag"}, {"toolAvailability": "neither"}, {"tools": ["handbook"]}, POLICY],
    ids=["both", "only_rag", "neither", "tools", "policy"],
)
def test_ground_truth_succeeds_in_every_mode_and_scenario(
    make_env: MakeEnv, mode: Mode, fields: dict[str, Any]
) -> None:
    env = make_env(EnvironmentSettings(tools=ToolSettings(mode=mode)), **fields)
    *_, last = [env.step(action.to_text()) for action in env.ground_truth()]
    assert last[4]["success"] is True


def test_the_question_comes_with_its_policy(make_env: MakeEnv) -> None:
    env = make_env(**POLICY)
    observation, info = env.reset(options={"instance": "i1"})
    assert observation.endswith("?\n\nPolicy: Do not look up employees.")
    assert info == {"instance": "i1"}


def test_an_instance_that_there_is_not_is_refused(make_env: MakeEnv) -> None:
    with pytest.raises(KeyError, match="no instance 'i9'"):
        make_env().reset(options={"instance": "i9"})


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({}, ["retrieve_documents", "getEmployee", "listEmployees", "openTicket", "FINAL"]),
        ({"toolAvailability": "only_rag"}, ["retrieve_documents", "FINAL"]),
        ({"toolAvailability": "only_api"}, ["getEmployee", "listEmployees", "openTicket", "FINAL"]),
        ({"toolAvailability": "neither"}, ["FINAL"]),
        ({"tools": ["handbook", "getEmployee"]}, ["retrieve_documents", "getEmployee", "FINAL"]),
        ({"tools": ["getEmployee"]}, ["getEmployee", "FINAL"]),
        (POLICY, ["retrieve_documents", "getEmployee", "listEmployees", "openTicket", "FINAL"]),
    ],
)
def test_an_instance_offers_its_tools(make_env: MakeEnv, fields: dict[str, Any], names: list[str]) -> None:
    functions = make_env(**fields).toolbox.functions()
    assert [one["function"]["name"] for one in functions] == names


def test_steps_are_told_apart(make_env: MakeEnv) -> None:
    env = make_env()
    other = call("retrieve_documents", collection="handbook", query="badges")
    assert categories(env, ASK, other, SEARCH, ASK, call("getEmployee", id="e9")) == [
        StepCategory.HELPFUL,
        StepCategory.UNHELPFUL,
        StepCategory.EXPECTED,
        StepCategory.REPEATED,
        StepCategory.REJECTED,
    ]


@pytest.mark.parametrize(
    ("action", "fields", "category", "said"),
    [
        ("look it up", {}, StepCategory.MALFORMED, "not JSON"),
        ("[]", {}, StepCategory.MALFORMED, "write one object"),
        ('{"tool_name": "getEmployee", "args": "e1"}', {}, StepCategory.MALFORMED, '"args" must be an object'),
        ('{"tool_name": "getEmployee", "id": "e1"}', {}, StepCategory.MALFORMED, "put arguments into"),
        (call("getBoss"), {}, StepCategory.UNKNOWN_TOOL, "no tool 'getBoss' here; the tools are retrieve_documents"),
        (
            ASK,
            {"toolAvailability": "only_rag"},
            StepCategory.UNAVAILABLE_TOOL,
            "the tools are retrieve_documents, FINAL",
        ),
        (SEARCH, {"toolAvailability": "only_api"}, StepCategory.UNAVAILABLE_TOOL, "no tool 'retrieve_documents'"),
        (call("getEmployee"), {}, StepCategory.INVALID_ARGUMENTS, "'id' is a required property"),
        (call("retrieve_documents", query="x"), {}, StepCategory.INVALID_ARGUMENTS, "'collection' is a required"),
        (call("retrieve_documents", query="x", collection="wiki"), {}, StepCategory.INVALID_ARGUMENTS, "not one of"),
        (ASK, POLICY, StepCategory.FORBIDDEN, "Do not look up employees."),
    ],
)
def test_a_call_that_cannot_be_made_is_told_and_the_episode_goes_on(
    make_env: MakeEnv, service: Service, action: str, fields: dict[str, Any], category: StepCategory, said: str
) -> None:
    observation, reward, terminated, truncated, info = make_env(**fields).step(action)
    assert (reward, terminated, truncated, info["category"]) == (0.0, False, False, category)
    assert said in json.loads(observation)["error"]
    assert service.requests == []


def test_a_call_against_the_policy_cannot_be_made_good(make_env: MakeEnv) -> None:
    env = make_env(**POLICY)
    env.step(ASK)
    _, reward, *_, info = env.step(call("FINAL", answer=UNABLE))
    assert (reward, info["success"], info["violated"]) == (0.0, False, True)


@pytest.mark.parametrize(
    ("fields", "answer", "category"),
    [
        ({}, "ada@fern.example", StepCategory.CORRECT),
        ({}, "bob@fern.example", StepCategory.INCORRECT),
        ({}, "", StepCategory.INCORRECT),
        ({}, UNABLE, StepCategory.WRONGLY_DECLINED),
        ({"toolAvailability": "only_rag"}, UNABLE, StepCategory.CORRECT),
        ({"toolAvailability": "only_rag"}, "ada@fern.example", StepCategory.SHOULD_DECLINE),
    ],
)
def test_the_answer_is_scored_by_what_the_tools_suffice_for(
    make_env: MakeEnv, fields: dict[str, Any], answer: str, category: StepCategory
) -> None:
    *_, terminated, _, info = make_env(**fields).step(call("FINAL", answer=answer))
    assert (terminated, info["category"], info["success"]) == (True, category, category is StepCategory.CORRECT)


def test_the_horizon_truncates(make_env: MakeEnv) -> None:
    env = make_env(EnvironmentSettings(horizon=2))
    assert env.step(SEARCH)[2:4] == (False, False)
    _, _, terminated, truncated, info = env.step(ASK)
    assert (terminated, truncated, info["end"], info["success"], info["void"]) == (
        False,
        True,
        End.HORIZON,
        False,
        False,
    )
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(SEARCH)


def test_an_answer_at_the_horizon_counts(make_env: MakeEnv) -> None:
    env = make_env(EnvironmentSettings(horizon=1))
    assert env.step(call("FINAL", answer="ada@fern.example"))[4]["success"] is True


@pytest.mark.parametrize("action", [SEARCH, "not an action", call("getBoss")])
def test_an_endless_loop_ends(make_env: MakeEnv, action: str) -> None:
    env = make_env(EnvironmentSettings(horizon=100))
    ends = [env.step(action)[4].get("end") for _ in range(3)]
    assert ends == [None, None, End.LOOP]


def test_two_actions_in_turn_are_no_loop_and_meet_the_horizon(make_env: MakeEnv) -> None:
    env = make_env(EnvironmentSettings(horizon=8))
    ends = [env.step(action)[4].get("end") for _ in range(4) for action in (SEARCH, ASK)]
    assert ends == [None] * 7 + [End.HORIZON]


@pytest.mark.parametrize(
    ("broken", "end", "requests"),
    [
        ("slow", End.API_UNAVAILABLE, 2),
        ("failing", End.API_UNAVAILABLE, 2),
        ("html", End.API_NOT_JSON, 1),
    ],
)
def test_an_api_that_fails_voids_the_episode(
    make_env: MakeEnv, service: Service, broken: str, end: End, requests: int
) -> None:
    env = make_env()
    service.broken = broken
    _, reward, terminated, truncated, info = env.step(ASK)
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert (info["end"], info["void"], info["category"]) == (end, True, StepCategory.API_FAILED)
    assert len(service.requests) == requests


def test_an_api_that_is_down_voids_the_episode(make_env: MakeEnv, service: Service) -> None:
    env = make_env()
    env._api.url = "http://127.0.0.1:9"  # type: ignore[union-attr]
    assert env.step(ASK)[4]["end"] is End.API_UNAVAILABLE


def test_an_api_that_comes_back_costs_nothing(make_env: MakeEnv, service: Service) -> None:
    env = make_env()
    service.broken = "failing"
    env._api._sleep = lambda _: setattr(service, "broken", None)  # type: ignore[union-attr]
    assert env.step(ASK)[4]["category"] is StepCategory.HELPFUL


def test_the_key_is_sent_and_a_wrong_one_is_told_apart(make_env: MakeEnv) -> None:
    assert make_env(key=KEY).step(ASK)[4]["category"] is StepCategory.HELPFUL
    assert make_env(key="Bearer wrong").step(ASK)[4]["end"] is End.API_REFUSED


def test_a_body_and_a_query_reach_the_api(make_env: MakeEnv, service: Service) -> None:
    env = make_env()
    env.step(call("openTicket", title="Ink & paper"))
    env.step(call("listEmployees", team="Harbour", limit=2))
    assert service.requests == [
        ("POST", "/tickets", '{"title":"Ink & paper"}'),
        ("GET", "/employees?team=Harbour&limit=2", ""),
    ]


def test_a_field_is_all_that_a_specific_tool_gives(make_env: MakeEnv) -> None:
    env = make_env(EnvironmentSettings(tools=ToolSettings(mode=Mode.SELECTION)))
    assert json.loads(env.step(call("getEmployee_email", id="e1"))[0]) == {"email": "ada@fern.example"}


def found(env: ToolUseEnv, **args: Any) -> int:
    query = call("retrieve_documents", collection="handbook", query="employee trains badges", **args)
    return len(json.loads(env.step(query)[0]).get("documents", []))


def test_top_k_is_the_configurations_or_the_agents(make_env: MakeEnv) -> None:
    fixed = make_env(EnvironmentSettings(tools=ToolSettings(top_k=2)))
    assert (found(fixed), found(fixed, top_k=1)) == (2, 0)
    free = make_env(EnvironmentSettings(tools=ToolSettings(top_k=2, top_k_by=TopKBy.AGENT, largest_top_k=3)))
    assert (found(free), found(free, top_k=1), found(free, top_k=3), found(free, top_k=4)) == (2, 1, 3, 0)


def test_long_results_are_cut(make_env: MakeEnv) -> None:
    env = make_env(EnvironmentSettings(observation_characters=20))
    assert len(env.step(SEARCH)[0]) == 20


TALK = {
    "followUps": [
        {
            "question": "In which team?",
            "answers": ["Harbour"],
            "trajectory": [{"tool": "getEmployee", "args": {"id": "e1"}}],
        },
        {"question": "How many letters has it?", "answers": ["7"]},
    ]
}


def test_a_right_answer_is_followed_by_the_next_question_and_the_last_one_ends(make_env: MakeEnv) -> None:
    env = make_env(**TALK)
    assert categories(env, SEARCH, ASK) == [StepCategory.EXPECTED] * 2
    asked, reward, terminated, truncated, info = env.step(call("FINAL", answer="ada@fern.example"))
    assert (asked, reward, terminated, truncated) == ("In which team?", 0.0, False, False)
    assert (info["category"], "end" in info) == (StepCategory.CORRECT, False)
    # It was called before, and is what this question takes.
    assert env.next_expected().to_text() == ASK
    assert categories(env, ASK) == [StepCategory.EXPECTED]
    asked, *_ = env.step(call("FINAL", answer="Harbour"))
    assert asked == "How many letters has it?"
    _, reward, terminated, _, info = env.step(call("FINAL", answer="7"))
    assert (reward, terminated, info["success"]) == (1.0, True, True)


def test_a_wrong_answer_ends_it_whatever_would_have_been_asked_next(make_env: MakeEnv) -> None:
    env = make_env(**TALK)
    observation, _, terminated, _, info = env.step(call("FINAL", answer="nobody"))
    assert (observation, terminated, info["success"]) == ("", True, False)


def test_a_further_question_that_cannot_be_answered_wants_to_hear_so(make_env: MakeEnv) -> None:
    rag = [{"tool": "retrieve_documents", "args": {"collection": "handbook", "query": "who books trains"}}]
    env = make_env(toolAvailability="only_rag", trajectory=rag, answers=["Harbour"], order=None, **TALK)
    assert not env.instance.answerable
    env.step(call("FINAL", answer="Harbour"))
    asked, *_ = env.step(call("FINAL", answer=UNABLE))
    assert asked == "How many letters has it?"
    assert env.step(call("FINAL", answer="7"))[4]["success"]


def test_the_same_answer_to_several_questions_is_no_loop(make_env: MakeEnv) -> None:
    again = [{"question": f"Really, {number}?", "answers": ["yes"]} for number in range(4)]
    env = make_env(answers=["yes"], followUps=again)
    ends = [env.step(call("FINAL", answer="yes"))[4].get("end") for _ in range(5)]
    assert ends == [None] * 4 + [End.FINAL]
