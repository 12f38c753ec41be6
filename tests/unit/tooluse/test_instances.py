"""Instances are read, and what is wrong in a file is said with file, instance, field and fix."""

import json
from pathlib import Path
from typing import Any

import pytest
from unit.tooluse.conftest import ASK, SEARCH, instance
from whetstone_agent.tooluse.errors import EnvironmentDataError
from whetstone_agent.tooluse.instances import check_instances, read_instances
from whetstone_agent.tooluse.rungs import fitting_rungs
from whetstone_agent.tooluse.world import World

NEXT = {"question": "In which team?", "answers": ["Harbour"], "trajectory": [{**ASK, "field": "team"}]}


def write(path: Path, rows: Any) -> Path:
    path.write_text(json.dumps(rows))
    return path


def test_an_instance_has_what_its_file_says(world: World, tmp_path: Path) -> None:
    (found,) = world.read(write(tmp_path / "test.json", [instance()]))
    assert (found.id, found.answers, found.tool_availability, found.answerable) == (
        "i1",
        ["ada@fern.example"],
        "both",
        True,
    )
    assert [step.tool for step in found.trajectory] == ["retrieve_documents", "getEmployee"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"answers": []}, "train.json: instance i1: answers: "),
        ({"answers": [" "]}, "train.json: instance i1: answers.0: "),
        ({"question": ""}, "train.json: instance i1: question: "),
        ({"toolAvailability": "all"}, "train.json: instance i1: toolAvailability: "),
        ({"order": "any"}, "train.json: instance i1: order: "),
        ({"anser": "x"}, "train.json: instance i1: anser: "),
        ({"tools": ["wiki"]}, "train.json: instance i1: tools: no collection or operation 'wiki'"),
        ({"trajectory": [{"tool": "getBoss"}]}, "trajectory.0.tool: no tool 'getBoss': use one of retrieve_documents"),
        ({"trajectory": [{**ASK, "args": {"id": "x"}}]}, "trajectory.0.args: id: "),
        ({"trajectory": [{**ASK, "field": "age"}]}, "trajectory.0.field: getEmployee answers no field 'age'"),
        ({"trajectory": [{**SEARCH, "documents": ["x"]}]}, "trajectory.0.documents: no document 'x' in handbook"),
        ({"trajectory": [{**SEARCH, "args": {"collection": "x"}}]}, "args.collection: no collection 'x'"),
        ({"trajectory": [{**SEARCH, "args": {"collection": "handbook"}}]}, "args.query: is missing"),
        ({"forbidden": {"collections": ["handbook"]}}, "toolUsage: is empty, and forbidden is not"),
        ({"forbidden": {"collections": ["x"]}, "toolUsage": "No x."}, "forbidden.collections: no collection 'x'"),
        ({"forbidden": {"operations": ["x"]}, "toolUsage": "No x."}, "forbidden.operations: no operation 'x'"),
        ({"followUps": [{"question": "And?"}]}, "followUps.0.answers: field required: add it"),
        ({"followUps": [{**NEXT, "trajectory": [{"tool": "getBoss"}]}]}, "followUps.0.trajectory.0.tool: no tool"),
        ({"tags": ["nested", "single"]}, "tags: nested and single are rungs of tool use: leave one"),
        (
            {"tags": ["single"]},
            "tags: single does not fit the calls that the answer takes: use parallel or sequential or",
        ),
        (
            {"tags": ["nested"], "toolAvailability": "neither"},
            "tags: nested does not fit the calls that the answer takes: use none",
        ),
        ({"tags": ["multi-turn"]}, "tags: multi-turn does not fit"),
    ],
)
def test_a_wrong_instance_is_named_with_field_and_fix(
    world: World, tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(EnvironmentDataError) as caught:
        world.read(write(tmp_path / "train.json", [instance(**changed)]))
    assert said in str(caught.value)
    assert ": instance i1: " in str(caught.value)


def test_an_instance_without_answer_is_refused_before_anything_runs(tmp_path: Path) -> None:
    row = instance()
    del row["answers"]
    with pytest.raises(EnvironmentDataError, match="instance i1: answers: field required: add it"):
        read_instances(write(tmp_path / "train.json", [row]))


def test_all_problems_of_a_file_are_named_at_once() -> None:
    rows = [instance(answers=[]), instance(id="i2", question=""), instance(id="i2")]
    with pytest.raises(EnvironmentDataError) as caught:
        check_instances(rows, "train.json")
    assert [problem.split(":")[1].strip() for problem in caught.value.problems] == [
        "instance i1",
        "instance i2",
        "instance i2",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"{", "train.json: is no JSON (line 1, column 2"),
        (b"{}", "train.json: must be a JSON list of objects"),
        (b"[]", "train.json: holds no instance"),
        (b"\xff", "train.json: is not UTF-8 (byte 0)"),
        (None, "train.json: cannot be read: No such file"),
    ],
)
def test_a_file_that_holds_no_instances_is_refused(tmp_path: Path, text: bytes | None, said: str) -> None:
    if text is not None:
        (tmp_path / "train.json").write_bytes(text)
    with pytest.raises(EnvironmentDataError) as caught:
        read_instances(tmp_path / "train.json")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "answerable"),
    [
        ({}, True),
        ({"toolAvailability": "only_rag"}, False),
        ({"toolAvailability": "only_api"}, False),
        ({"toolAvailability": "neither"}, False),
        ({"toolAvailability": "only_rag", "trajectory": [SEARCH]}, True),
        ({"toolAvailability": "only_api", "trajectory": [ASK]}, True),
        ({"toolAvailability": "neither", "trajectory": []}, True),
        ({"tools": ["handbook"]}, False),
        ({"toolUsage": "No API.", "forbidden": {"operations": ["getEmployee"]}}, False),
        ({"toolUsage": "No API.", "forbidden": {"operations": ["listEmployees"]}}, True),
    ],
)
def test_answerable_is_what_its_tools_suffice_for(fields: dict[str, Any], answerable: bool) -> None:
    (found,) = check_instances([instance(**fields)], "train.json")
    assert found.answerable is answerable


@pytest.mark.parametrize(
    ("fields", "rungs"),
    [
        ({"trajectory": []}, ["none"]),
        ({"trajectory": [ASK]}, ["single"]),
        ({"toolAvailability": "only_rag"}, ["none"]),
        ({}, ["parallel", "sequential", "nested"]),
        ({"followUps": [NEXT]}, ["multi-turn"]),
        # The first question can be answered, the second one cannot.
        ({"toolAvailability": "only_rag", "trajectory": [SEARCH], "followUps": [NEXT]}, ["multi-turn"]),
        ({"toolAvailability": "neither", "followUps": [NEXT]}, ["none"]),
    ],
)
def test_calls_say_which_rungs_fit(world: World, tmp_path: Path, fields: dict[str, Any], rungs: list[str]) -> None:
    (found,) = check_instances([instance(**fields)], "train.json")
    assert [str(one) for one in fitting_rungs(found)] == rungs
    tagged = [instance(id=f"i-{rung}", tags=["hard", rung], **fields) for rung in rungs]
    assert len(world.read(write(tmp_path / "train.json", tagged))) == len(rungs)


def test_an_instance_with_further_questions_is_another_task() -> None:
    plain, longer = check_instances([instance(), instance(id="i2", followUps=[NEXT])], "train.json")
    assert plain.task != longer.task
    assert [turn.question for turn in longer.turns] == [plain.question, "In which team?"]
