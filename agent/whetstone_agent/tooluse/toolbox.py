"""The tools of one instance: what the agent is offered, what a call of it means, and how ground truth is called."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

from jsonschema import Draft202012Validator

from whetstone_agent.tooluse.actions import ANSWER, FINAL, Action
from whetstone_agent.tooluse.api_tools import ApiTools, Mode, first_problem
from whetstone_agent.tooluse.instances import RETRIEVE, Instance, Step
from whetstone_agent.tooluse.openapi import Operation
from whetstone_agent.tooluse.outcomes import StepCategory
from whetstone_agent.tooluse.world import World

TOP_K: Final = "top_k"


class TopKBy(StrEnum):
    """Who says how many documents a search gives."""

    CONFIGURATION = "Configuration"
    AGENT = "Agent"


@dataclass(frozen=True, kw_only=True)
class ToolSettings:
    """How tools are offered.

    Args:
        mode: How fine the tools of the API are.
        top_k: Documents that a search gives; with `TopKBy.AGENT`, where the agent does not say.
        top_k_by: Who says it.
        largest_top_k: Most that the agent may ask for.
    """

    mode: Mode = Mode.REST
    top_k: int = 3
    top_k_by: TopKBy = TopKBy.CONFIGURATION
    largest_top_k: int = 10


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why a call is not made.

    Args:
        category: What the step was.
        message: What the agent is told.
    """

    category: StepCategory
    message: str


@dataclass(frozen=True, kw_only=True)
class Toolbox:
    """The tools of an instance."""

    instance: Instance
    settings: ToolSettings
    collections: tuple[str, ...]
    api: ApiTools
    everything: frozenset[str]
    """Names of all tools of the world in this mode."""

    @property
    def names(self) -> list[str]:
        """Names of the tools that are offered."""
        return [*([RETRIEVE] if self.collections else []), *self.api.by_name]

    def functions(self) -> list[dict[str, Any]]:
        """Return the tools as OpenAI's API takes them, `FINAL` included."""
        found = [_function(RETRIEVE, _RETRIEVE_TOLD, self._retrieve_schema())] if self.collections else []
        found += [_function(tool.name, tool.description, dict(tool.schema)) for tool in self.api.by_name.values()]
        return [*found, _function(FINAL, _FINAL_TOLD, _FINAL_SCHEMA)]

    def resolve(self, action: Action) -> tuple[Step, int] | Refusal:
        """Return the call that an action means and the documents it asks for, or why it is not made.

        Args:
            action: Any but `FINAL`.
        """
        if action.tool not in self.names:
            exists = action.tool in self.everything
            category = StepCategory.UNAVAILABLE_TOOL if exists else StepCategory.UNKNOWN_TOOL
            there = f"the tools are {', '.join([*self.names, FINAL])}"
            return Refusal(category=category, message=f"there is no tool {action.tool!r} here; {there}")
        searches = action.tool == RETRIEVE
        if searches:
            said = first_problem(_validator(self.collections, self.settings), action.args)
        else:
            said = self.api.problem(action.tool, action.args)
        if said is not None:
            message = f"the arguments of {action.tool} are wrong: {said}"
            return Refusal(category=StepCategory.INVALID_ARGUMENTS, message=message)
        if searches:
            args = {name: action.args[name] for name in ("collection", "query")}
            step, top_k = Step(tool=RETRIEVE, args=args), action.args.get(TOP_K, self.settings.top_k)
        else:
            step, top_k = self.api.by_name[action.tool].step(action.args), 0
        if self.instance.forbids(step):
            message = f"the policy forbids {step.source}: {self.instance.tool_usage}"
            return Refusal(category=StepCategory.FORBIDDEN, message=message)
        return step, top_k

    def render(self, step: Step) -> Action:
        """Return the action that makes a call of the ground truth; its tool is offered."""
        if step.searches:
            return Action(tool=RETRIEVE, args=dict(step.args))
        name, args = self.api.render(step)
        return Action(tool=name, args=args)

    def _retrieve_schema(self) -> dict[str, Any]:
        return _retrieve_schema(self.collections, self.settings)


def make_toolbox(instance: Instance, world: World, settings: ToolSettings) -> Toolbox:
    """Return the tools of an instance.

    Args:
        instance: The instance.
        world: What it is about.
        settings: How tools are offered.

    Raises:
        EnvironmentDataError: The API's operations cannot be tools of that mode.
    """
    available = instance.tool_availability
    operations = [one for name, one in world.operations.items() if available.api and instance.lists(name)]
    everything = _api_tools(settings.mode, _Operations(list(world.operations.values()))).by_name
    return Toolbox(
        instance=instance,
        settings=settings,
        collections=tuple(name for name in sorted(world.collections) if available.documents and instance.lists(name)),
        api=_api_tools(settings.mode, _Operations(operations)),
        everything=frozenset({*everything, *([RETRIEVE] if world.collections else [])}),
    )


class _Operations(tuple[Operation, ...]):
    """Operations that are the same when they are the same objects: a cache must not compare their schemas."""

    def __new__(cls, operations: Sequence[Operation]) -> "_Operations":
        return super().__new__(cls, operations)

    def __hash__(self) -> int:
        return hash(tuple(id(one) for one in self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Operations) and [id(one) for one in self] == [id(one) for one in other]


@lru_cache(maxsize=256)
def _api_tools(mode: Mode, operations: _Operations) -> ApiTools:
    return ApiTools(mode, operations)


@lru_cache(maxsize=256)
def _validator(collections: tuple[str, ...], settings: ToolSettings) -> Draft202012Validator:
    return Draft202012Validator(_retrieve_schema(collections, settings))


def _retrieve_schema(collections: tuple[str, ...], settings: ToolSettings) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "collection": {"type": "string", "enum": list(collections), "description": "Collection to search in"},
        "query": {"type": "string", "minLength": 1, "description": "What to search for"},
    }
    if settings.top_k_by is TopKBy.AGENT:
        told = f"Documents at most (default {settings.top_k})"
        properties[TOP_K] = {
            "type": "integer",
            "minimum": 1,
            "maximum": settings.largest_top_k,
            "description": told,
        }
    return {
        "type": "object",
        "properties": properties,
        "required": ["collection", "query"],
        "additionalProperties": False,
    }


def _function(name: str, told: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": told, "parameters": dict(schema)}}


_RETRIEVE_TOLD: Final = "Search documents; gives those that fit the query best."
_FINAL_TOLD: Final = "Give the answer to the question, or say that you cannot answer it with the tools, and end."
_FINAL_SCHEMA: Final = {
    "type": "object",
    "properties": {ANSWER: {"type": "string", "description": "The answer, as short as possible"}},
    "required": [ANSWER],
    "additionalProperties": False,
}
