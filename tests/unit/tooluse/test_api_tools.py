"""Operations become tools in three granularities, and a call means the same in each."""

from pathlib import Path
from typing import Any

import pytest
from unit.tooluse.conftest import OPENAPI
from whetstone_agent.tooluse.api_tools import ApiTools, Mode
from whetstone_agent.tooluse.errors import EnvironmentDataError
from whetstone_agent.tooluse.instances import Step
from whetstone_agent.tooluse.openapi import read_api
from whetstone_agent.tooluse.world import World

EMAIL = Step(tool="getEmployee", args={"id": "e1"}, field="email")
TEAM = Step(tool="listEmployees", args={"team": "Harbour", "limit": 2})
ALL = Step(tool="listEmployees", args={"limit": 2})


def tools(world: World, mode: Mode) -> ApiTools:
    return ApiTools(mode, list(world.operations.values()))


def test_rest_has_a_tool_for_each_operation(world: World) -> None:
    assert list(tools(world, Mode.REST).by_name) == ["getEmployee", "listEmployees", "openTicket"]


def test_slot_filling_has_few_general_tools(world: World) -> None:
    found = tools(world, Mode.SLOT_FILLING).by_name
    assert {name: set(tool.schema["properties"]) for name, tool in found.items()} == {
        "employees": {"operation", "id", "team", "limit"},
        "tickets": {"operation", "title"},
    }


def test_selection_has_many_specific_tools(world: World) -> None:
    found = tools(world, Mode.SELECTION).by_name
    assert {name: set(tool.schema["properties"]) for name, tool in found.items()} == {
        "getEmployee": {"id"},
        "getEmployee_name": {"id"},
        "getEmployee_email": {"id"},
        "getEmployee_team": {"id"},
        "listEmployees": {"team", "limit"},
        "listEmployees_team_Harbour": {"limit"},
        "listEmployees_team_Meadow": {"limit"},
        "openTicket": {"title"},
        "openTicket_number": {"title"},
    }


@pytest.mark.parametrize(
    ("mode", "step", "rendered"),
    [
        (Mode.REST, EMAIL, ("getEmployee", {"id": "e1"})),
        (Mode.REST, TEAM, ("listEmployees", {"team": "Harbour", "limit": 2})),
        (Mode.SLOT_FILLING, EMAIL, ("employees", {"operation": "getEmployee", "id": "e1"})),
        (Mode.SELECTION, EMAIL, ("getEmployee_email", {"id": "e1"})),
        (Mode.SELECTION, TEAM, ("listEmployees_team_Harbour", {"limit": 2})),
        (Mode.SELECTION, ALL, ("listEmployees", {"limit": 2})),
    ],
)
def test_ground_truth_is_rendered_in_each_mode_and_means_the_same(
    world: World, mode: Mode, step: Step, rendered: tuple[str, dict[str, Any]]
) -> None:
    found = tools(world, mode)
    name, args = found.render(step)
    assert (name, args) == rendered
    assert found.problem(name, args) is None
    again = found.by_name[name].step(args)
    assert (again.tool, again.args) == (step.tool, step.args)


@pytest.mark.parametrize(
    ("mode", "name", "args", "said"),
    [
        (Mode.REST, "getEmployee", {}, "'id' is a required property"),
        (Mode.REST, "getEmployee", {"id": "7"}, "id: '7' does not match"),
        (Mode.REST, "getEmployee", {"id": "e1", "x": 1}, "('x' was unexpected)"),
        (Mode.REST, "listEmployees", {"limit": "2"}, "limit: '2' is not of type 'integer'"),
        (Mode.REST, "listEmployees", {"team": "Tundra"}, "team: 'Tundra' is not one of"),
        (Mode.SLOT_FILLING, "employees", {"id": "e1"}, "'operation' is a required property"),
        (Mode.SLOT_FILLING, "employees", {"operation": "getEmployee"}, "'id' is a required property"),
        (Mode.SLOT_FILLING, "employees", {"operation": "getEmployee", "id": "e1", "limit": 1}, "unexpected"),
        (Mode.SLOT_FILLING, "employees", {"operation": "openTicket"}, "operation: 'openTicket' is not one of"),
        (Mode.SELECTION, "listEmployees_team_Harbour", {"team": "Harbour"}, "unexpected"),
    ],
)
def test_arguments_are_held_to_the_schema(world: World, mode: Mode, name: str, args: dict[str, Any], said: str) -> None:
    assert said in (tools(world, mode).problem(name, args) or "")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("openapi: 3.1.0", "openapi: 2.0.0", "must be an OpenAPI document of version 3"),
        ("paths:", "paths: [", "cannot be parsed"),
        ("operationId: getEmployee", "x-none: 1", "GET /employees/{id}: operationId: is missing"),
        ("operationId: listEmployees", "operationId: getEmployee", "'getEmployee' is there twice"),
        ("name: id, in: path", "name: id, in: header", "parameter 'id' in 'header'"),
        ("name: id, in: path", "name: key, in: path", "parameter 'key': is not in the path"),
        ('$ref: "#/components/schemas/Id"', '$ref: "#/components/schemas/Ix"', "schemas/Ix: is not in the document"),
        ('$ref: "#/components/schemas/Id"', '$ref: "other.yaml#/Id"', "points out of the document"),
        ('Id: {type: string, pattern: "^e[0-9]+$"}', 'Id: {$ref: "#/components/schemas/Id"}', "refers to itself"),
        (
            "application/json:\n            schema: {type: object",
            "text/plain:\n            schema: {type: object",
            "only JSON",
        ),
        ("minimum: 1", "minimum: x", "schema of 'limit'"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_by_name(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in OPENAPI
    path = tmp_path / "openapi.yaml"
    path.write_text(OPENAPI.replace(old, new))
    with pytest.raises(EnvironmentDataError) as caught:
        read_api(path)
    assert said in str(caught.value)
    assert str(caught.value).startswith("openapi.yaml: ")


def test_what_stands_in_the_path_is_required_also_where_the_document_forgets_it(tmp_path: Path) -> None:
    path = tmp_path / "openapi.yaml"
    path.write_text(OPENAPI.replace("in: path, required: true,", "in: path,"))
    assert read_api(path).operations["getEmployee"].schema["required"] == ["id"]
