"""Operations of an API as tools, in three granularities.

rest           one tool an operation
slot_filling   few general tools: one a tag, whose argument `operation` chooses; the others are slots to fill
selection      many specific tools: one for each value of an operation's first enumerated argument, and for each field
               of its answer

A call of any of them is the same `Step`, so that ground truth is written once.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from typing import Any, Final

from jsonschema import Draft202012Validator

from whetstone_agent.tooluse.errors import EnvironmentDataError
from whetstone_agent.tooluse.instances import Step
from whetstone_agent.tooluse.openapi import Operation

OPERATION: Final = "operation"
"""Argument of a general tool that names the operation."""
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9_-]+")
_NAME_LENGTH: Final = 64
"""Longest name of a function in OpenAI's API."""


class Mode(StrEnum):
    """How fine the tools of an API are."""

    REST = "rest"
    SLOT_FILLING = "slot_filling"
    SELECTION = "selection"


@dataclass(frozen=True, kw_only=True)
class ApiTool:
    """One tool."""

    name: str
    description: str
    schema: Mapping[str, Any]
    """JSON Schema of its arguments."""
    operations: Mapping[str, Operation]
    """Operations that it can call, by operationId; one, but for general tools."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that are part of its name."""
    answer_field: str | None = None
    """The only field of the answer that it gives."""

    def step(self, args: Mapping[str, Any]) -> Step:
        """Return the call that arguments mean; they fit the schema."""
        if len(self.operations) == 1 and OPERATION not in self.schema["properties"]:
            return Step(tool=next(iter(self.operations)), args={**args, **self.fixed}, field=self.answer_field)
        left = {name: value for name, value in args.items() if name != OPERATION}
        return Step(tool=args[OPERATION], args=left)


class ApiTools:
    """The tools of some operations in one mode.

    Args:
        mode: How fine they are.
        operations: What they may call.

    Raises:
        EnvironmentDataError: Two tools would have one name.
    """

    def __init__(self, mode: Mode, operations: Sequence[Operation]) -> None:
        self.mode = mode
        self.by_name: dict[str, ApiTool] = {}
        for tool in _BUILDERS[mode](operations):
            if tool.name in self.by_name:
                raise EnvironmentDataError([f"two tools of mode {mode} are named {tool.name!r}: rename an operationId"])
            self.by_name[tool.name] = tool
        self.validators = {name: Draft202012Validator(dict(tool.schema)) for name, tool in self.by_name.items()}
        self._operations = {one.id: Draft202012Validator(one.schema) for one in operations}

    def problem(self, name: str, args: Mapping[str, Any]) -> str | None:
        """Say what is wrong with the arguments of a call, if anything.

        Args:
            name: A tool's name.
            args: Its arguments.
        """
        tool = self.by_name[name]
        said = first_problem(self.validators[name], args)
        if said is None and tool.operations.keys() != {tool.step(args).tool}:
            step = tool.step(args)
            said = first_problem(self._operations[step.tool], step.args)
        return said

    def render(self, step: Step) -> tuple[str, dict[str, Any]]:
        """Return tool and arguments that make a call of the ground truth in this mode.

        Args:
            step: A call of one of the operations.
        """
        if self.mode is Mode.SLOT_FILLING:
            name = next(name for name, tool in self.by_name.items() if step.tool in tool.operations)
            return name, {OPERATION: step.tool, **step.args}
        fitting = (tool for tool in self.by_name.values() if step.tool in tool.operations)
        best = max(
            (tool for tool in fitting if _makes(tool, step)),
            key=lambda tool: (tool.answer_field is not None, len(tool.fixed)),
        )
        return best.name, {name: value for name, value in step.args.items() if name not in best.fixed}


def first_problem(validator: Draft202012Validator, args: Mapping[str, Any]) -> str | None:
    """Return what a schema says about arguments, the same on every machine; None where they fit."""
    errors = sorted(
        validator.iter_errors(dict(args)), key=lambda error: ([str(part) for part in error.path], error.message)
    )
    if not errors:
        return None
    place = ".".join(str(part) for part in errors[0].path)
    return f"{place}: {errors[0].message}" if place else errors[0].message


def _makes(tool: ApiTool, step: Step) -> bool:
    return all(step.args.get(name) == value for name, value in tool.fixed.items()) and tool.answer_field in (
        None,
        step.field,
    )


def _rest(operations: Sequence[Operation]) -> Iterator[ApiTool]:
    for one in operations:
        yield ApiTool(name=_name(one.id), description=one.description, schema=one.schema, operations={one.id: one})


def _slot_filling(operations: Sequence[Operation]) -> Iterator[ApiTool]:
    for tag, group in groupby(sorted(operations, key=lambda one: one.tag), key=lambda one: one.tag):
        members = list(group)
        slots: dict[str, list[Mapping[str, Any]]] = {}
        for one in members:
            for parameter in one.parameters:
                forms = slots.setdefault(parameter.name, [])
                if parameter.schema not in forms:
                    forms.append(parameter.schema)
        if OPERATION in slots:
            raise EnvironmentDataError([f"tag {tag!r}: an argument is named {OPERATION!r}: rename it for slot_filling"])
        merged = {name: dict(forms[0]) if len(forms) == 1 else {"anyOf": forms} for name, forms in slots.items()}
        choice = {"type": "string", "enum": [one.id for one in members]}
        schema = {
            "type": "object",
            "properties": {OPERATION: choice, **merged},
            "required": [OPERATION],
            "additionalProperties": False,
        }
        told = "; ".join(f"{one.id}({', '.join(p.name for p in one.parameters)}): {one.description}" for one in members)
        yield ApiTool(name=_name(tag), description=told, schema=schema, operations={one.id: one for one in members})


def _selection(operations: Sequence[Operation]) -> Iterator[ApiTool]:
    for one in operations:
        for fixed in _choices(one):
            for name in (None, *one.fields):
                parts = [one.id, *(f"{key}_{value}" for key, value in fixed.items()), *([name] if name else [])]
                given = ", ".join(f"{key} {value}" for key, value in fixed.items())
                told = " ".join([one.description, *([f"With {given}."] if given else [])])
                yield ApiTool(
                    name=_name("_".join(parts)),
                    description=f"{told} Gives {name} only." if name else told,
                    schema=_without(one.schema, fixed),
                    operations={one.id: one},
                    fixed=fixed,
                    answer_field=name,
                )


def _choices(operation: Operation) -> list[dict[str, Any]]:
    listed = next((one for one in operation.parameters if one.schema.get("enum")), None)
    if listed is None:
        return [{}]
    values = [{listed.name: value} for value in listed.schema["enum"]]
    return values if listed.required else [{}, *values]


def _without(schema: Mapping[str, Any], fixed: Mapping[str, Any]) -> dict[str, Any]:
    properties = {name: one for name, one in schema["properties"].items() if name not in fixed}
    return {**schema, "properties": properties, "required": [name for name in schema["required"] if name not in fixed]}


def _name(text: str) -> str:
    return _NO_NAME.sub("_", text)[:_NAME_LENGTH]


_BUILDERS: Final = {Mode.REST: _rest, Mode.SLOT_FILLING: _slot_filling, Mode.SELECTION: _selection}
