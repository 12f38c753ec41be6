"""Raw questions become instances with their trajectories."""

import json
from pathlib import Path
from typing import Any

import pytest
from unit.tooluse.conftest import OPENAPI
from whetstone_agent.tooluse.convert import RawQuestion, convert, main
from whetstone_agent.tooluse.errors import EnvironmentDataError
from whetstone_agent.tooluse.instances import Instance, Order
from whetstone_agent.tooluse.world import World

PAGE = {"collection": "handbook", "document": "travel", "query": "who books trains", "answer": "e1"}
MAIL = {"operation": "getEmployee", "args": {"id": "{{0}}"}, "field": "email", "answer": "ada@fern.example"}
LEAVE = {"collection": "handbook", "document": "leave", "answer": 30}


def raw(**fields: Any) -> dict[str, Any]:
    return {"id": "q1", "question": "Whose email?", "hops": [PAGE, MAIL], **fields}


def made(world: World, order: Order | None = None, **fields: Any) -> list[Instance]:
    return convert([RawQuestion.model_validate(raw(**fields))], world, file="raw.json", order=order)


def test_hops_become_a_trajectory_with_earlier_answers_filled_in(world: World) -> None:
    (one,) = made(world)
    assert [(step.tool, step.args, step.field, step.documents) for step in one.trajectory] == [
        ("retrieve_documents", {"collection": "handbook", "query": "who books trains"}, None, ["travel"]),
        ("getEmployee", {"id": "e1"}, "email", []),
    ]
    assert (one.id, one.answers, one.order) == ("q1", ["ada@fern.example"], "rag_before_api")


def test_a_query_is_the_title_unless_it_is_given(world: World) -> None:
    (one,) = made(world, hops=[LEAVE])
    assert one.trajectory[0].args["query"] == "Annual leave"
    assert (one.answers, one.order) == (["30"], None)


def test_an_answer_inside_of_text_is_filled_in_and_a_whole_one_keeps_its_type(world: World) -> None:
    first = {**LEAVE, "answer": 2}
    listed = {"operation": "listEmployees", "args": {"limit": "{{0}}", "team": "Harbour"}, "answer": "Ada"}
    asked = {**PAGE, "query": "trains {{0}}"}
    (one,) = made(world, hops=[first, listed, asked])
    assert one.trajectory[1].args == {"limit": 2, "team": "Harbour"}
    assert one.trajectory[2].args["query"] == "trains 2"


@pytest.mark.parametrize(
    ("order", "tools", "said"),
    [
        (None, ["getEmployee", "retrieve_documents", "getEmployee"], "api_before_rag"),
        (Order.RAG_BEFORE_API, ["retrieve_documents", "getEmployee", "getEmployee"], "rag_before_api"),
        (Order.API_BEFORE_RAG, ["getEmployee", "retrieve_documents", "getEmployee"], "api_before_rag"),
    ],
)
def test_the_wanted_source_comes_first_where_hops_allow_it(
    world: World, order: Order | None, tools: list[str], said: str
) -> None:
    free = {"operation": "getEmployee", "args": {"id": "e1"}, "answer": "x"}
    after = {"operation": "getEmployee", "args": {"id": "{{1}}"}, "field": "email", "answer": "ada@fern.example"}
    (one,) = made(world, order, hops=[free, PAGE, after])
    assert ([step.tool for step in one.trajectory], one.order) == (tools, said)


def test_hops_whose_order_the_question_wants_stay_in_it(world: World) -> None:
    free = {"operation": "getEmployee", "args": {"id": "e1"}, "field": "email", "answer": "x"}
    (one,) = made(world, Order.RAG_BEFORE_API, hops=[free, PAGE], inOrder=True)
    assert ([step.tool for step in one.trajectory], one.order) == (
        ["getEmployee", "retrieve_documents"],
        "api_before_rag",
    )


def test_each_scenario_and_policy_is_an_instance(world: World) -> None:
    policy = {"text": "No employees.", "operations": ["getEmployee"]}
    found = made(world, scenarios=["both", "only_rag"], policies=[policy])
    assert [(one.id, one.tool_availability, one.tool_usage, one.answerable) for one in found] == [
        ("q1-both", "both", "", True),
        ("q1-only_rag", "only_rag", "", False),
        ("q1-policy-1", "both", "No employees.", False),
    ]


def test_further_questions_take_earlier_answers_and_count_on(world: World) -> None:
    team = {"operation": "getEmployee", "args": {"id": "{{0}}"}, "field": "team", "answer": "Harbour"}
    listed = {"operation": "listEmployees", "args": {"team": "{{2}}"}, "answer": "Ada"}
    asked = [
        {"question": "In which team?", "hops": [team]},
        {"question": "Who else?", "hops": [listed], "answers": ["nobody"]},
    ]
    (one,) = made(world, Order.RAG_BEFORE_API, followUps=asked)
    assert [(turn.question, turn.answers) for turn in one.turns] == [
        ("Whose email?", ["ada@fern.example"]),
        ("In which team?", ["Harbour"]),
        ("Who else?", ["nobody"]),
    ]
    assert [turn.trajectory[-1].args for turn in one.turns] == [{"id": "e1"}, {"id": "e1"}, {"team": "Harbour"}]
    assert one.tags == ["multi-turn"]


@pytest.mark.parametrize(
    ("fields", "rungs"),
    [
        ({"hops": [], "answers": ["4"]}, ["none"]),
        ({"hops": [PAGE]}, ["single"]),
        ({"hops": [PAGE, LEAVE]}, ["parallel"]),
        ({"hops": [PAGE, LEAVE], "inOrder": True}, ["sequential"]),
        ({"hops": [PAGE, LEAVE], "inOrder": True, "scenarios": ["both", "only_api"]}, ["sequential", "none"]),
        ({"inOrder": True}, ["nested"]),
        ({}, ["nested"]),
        ({"scenarios": ["both", "only_rag"]}, ["nested", "none"]),
    ],
)
def test_the_rung_follows_from_the_hops(world: World, fields: dict[str, Any], rungs: list[str]) -> None:
    assert [one.tags for one in made(world, tags=["hard"], **fields)] == [["hard", rung] for rung in rungs]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"followUps": [{"question": "And?"}]}, "followUps.0.answers: there is none"),
        (
            {"followUps": [{"question": "And?", "hops": [{**MAIL, "args": {"id": "{{2}}"}}]}]},
            "followUps.0.hops.0: takes the answer of a hop that is not before it",
        ),
        ({"hops": []}, "answers: there is none, and no hop to take it from"),
        ({"hops": [PAGE], "inOrder": True}, "inOrder: there are no two hops whose order could matter"),
        ({"hops": [{"answer": "x"}]}, "hops.0: give either collection"),
        ({"hops": [{**PAGE, **MAIL}]}, "hops.0: give either collection"),
        ({"hops": [{**PAGE, "answer": None}]}, "hops.0.answer: is missing"),
        ({"hops": [MAIL]}, "hops.0: takes the answer of a hop that is not before it"),
        ({"hops": [{**PAGE, "collection": "wiki"}]}, "hops.0.collection: no collection 'wiki'"),
        ({"hops": [{**PAGE, "document": "x"}]}, "hops.0.document: no document 'x'"),
        ({"hops": [{**PAGE, "query": "badges"}]}, "hops.0.query: 'badges' does not find 'travel'"),
    ],
)
def test_a_wrong_question_is_named_with_hop_and_fix(world: World, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(EnvironmentDataError) as caught:
        made(world, **fields)
    assert str(caught.value).startswith(f"raw.json: question q1: {said}")


def test_what_the_world_lacks_is_named_too(world: World) -> None:
    with pytest.raises(EnvironmentDataError, match=r"raw.json: instance q1: trajectory.0.tool: no tool 'getBoss'"):
        made(world, hops=[{"operation": "getBoss", "answer": "x"}])


def test_the_command_writes_a_file_that_the_gym_reads(
    world: World, world_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "raw.json").write_text(json.dumps([raw()]))
    out = tmp_path / "train.json"
    command = [str(tmp_path / "raw.json"), "--world", str(world_folder), "--out", str(out)]
    assert main([*command, "--order", "rag_before_api"]) == 0
    assert [one.id for one in world.read(out)] == ["q1"]
    (tmp_path / "raw.json").write_text(json.dumps([raw(hops=[MAIL])]))
    before = out.read_text()
    assert main(command) == 1
    assert "question q1: hops.0" in capsys.readouterr().err
    assert out.read_text() == before
    (tmp_path / "raw.json").write_text('[{"id": "q1"}]')
    assert main(command) == 1
    assert "raw.json: 0.question: Field required" in capsys.readouterr().err
    assert "getEmployee" in OPENAPI
