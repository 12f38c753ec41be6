"""Operations of an API, from its OpenAPI document (3.0 or 3.1, JSON or YAML; https://spec.openapis.org/oas/v3.1.1).

What tools need is read: parameters in path and query, fields of a JSON body, the fields of a successful answer, tags.
What cannot be offered as a tool is refused by name: an operation left out in silence would make questions unanswerable.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import yaml
from jsonschema import Draft202012Validator, SchemaError

from whetstone_agent.tooluse.errors import EnvironmentDataError

_METHODS: Final = ("get", "put", "post", "delete", "patch")
_JSON: Final = "application/json"


class Place(StrEnum):
    """Where an argument goes in the request."""

    PATH = "path"
    QUERY = "query"
    BODY = "body"


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One argument of an operation."""

    name: str
    place: Place
    schema: Mapping[str, Any]
    """JSON Schema without references."""
    required: bool


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One endpoint with its method."""

    id: str
    """Its operationId."""
    tag: str
    """Its first tag; that of the first part of its path, where it has none."""
    method: str
    path: str
    description: str
    parameters: tuple[Parameter, ...]
    fields: tuple[str, ...]
    """Fields of a successful answer that is an object; empty for others."""

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of its arguments."""
        return {
            "type": "object",
            "properties": {one.name: dict(one.schema) for one in self.parameters},
            "required": [one.name for one in self.parameters if one.required],
            "additionalProperties": False,
        }


@dataclass(frozen=True, kw_only=True)
class Api:
    """What a document says."""

    server: str | None
    """The first server's URL."""
    operations: Mapping[str, Operation]
    """By operationId, in the document's order."""


class _UnusableError(Exception):
    """A part of the document cannot be used; the message says which and what to do."""


def read_api(path: Path) -> Api:
    """Read a document.

    Raises:
        EnvironmentDataError: It cannot be read, or holds operations that cannot be tools; all of them are named.
    """
    try:
        text = path.read_text(encoding="utf-8")
        document = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except OSError as error:
        raise EnvironmentDataError([f"{path.name}: cannot be read: {error.strerror or error}"]) from error
    except (ValueError, yaml.YAMLError) as error:
        raise EnvironmentDataError([f"{path.name}: cannot be parsed: {error}"]) from error
    if not isinstance(document, dict) or not str(document.get("openapi", "")).startswith("3."):
        raise EnvironmentDataError([f"{path.name}: must be an OpenAPI document of version 3 (field openapi)"])
    found: dict[str, Operation] = {}
    problems: list[str] = []
    for where, method, route, item, shared in _endpoints(document):
        try:
            operation = _operation(document, method, route, item, shared)
        except _UnusableError as error:
            problems.append(f"{path.name}: {where}: {error}")
            continue
        if operation.id in found:
            problems.append(f"{path.name}: {where}: operationId {operation.id!r} is there twice: rename one")
        found[operation.id] = operation
    if not found and not problems:
        problems.append(f"{path.name}: paths: holds no operation: add one")
    if problems:
        raise EnvironmentDataError(problems)
    servers = document.get("servers") or []
    return Api(server=servers[0].get("url") if servers else None, operations=found)


def _endpoints(document: Mapping[str, Any]) -> Iterator[tuple[str, str, str, dict[str, Any], list[Any]]]:
    for route, item in (document.get("paths") or {}).items():
        for method in _METHODS:
            if method in item:
                yield f"{method.upper()} {route}", method, route, item[method], item.get("parameters") or []


def _operation(
    document: Mapping[str, Any], method: str, route: str, item: Mapping[str, Any], shared: list[Any]
) -> Operation:
    name = item.get("operationId")
    if not name:
        raise _UnusableError("operationId: is missing: add it, it names the tool")
    parameters: dict[str, Parameter] = {}
    for raw in (*shared, *(item.get("parameters") or [])):
        parameter = _parameter(_resolved(document, raw))
        parameters[parameter.name] = parameter
    for parameter in _body(document, item):
        if parameter.name in parameters:
            raise _UnusableError(f"requestBody: field {parameter.name!r} is a parameter too: rename one")
        parameters[parameter.name] = parameter
    for parameter in parameters.values():
        try:
            Draft202012Validator.check_schema(parameter.schema)
        except SchemaError as error:
            raise _UnusableError(f"schema of {parameter.name!r}: {error.message}") from error
        if parameter.place is Place.PATH and f"{{{parameter.name}}}" not in route:
            raise _UnusableError(f"parameter {parameter.name!r}: is not in the path: put {{{parameter.name}}} there")
    tags = item.get("tags") or [route.strip("/").split("/")[0] or "api"]
    return Operation(
        id=name,
        tag=tags[0],
        method=method.upper(),
        path=route,
        description=(item.get("description") or item.get("summary") or "").strip(),
        parameters=tuple(parameters.values()),
        fields=_answer_fields(document, item),
    )


def _parameter(raw: Mapping[str, Any]) -> Parameter:
    name, place = raw.get("name"), raw.get("in")
    if not name or place not in ("path", "query"):
        raise _UnusableError(f"parameter {name!r} in {place!r}: only path and query can be arguments: remove it")
    schema = dict(raw.get("schema") or {})
    if raw.get("description"):
        schema.setdefault("description", raw["description"])
    return Parameter(
        name=name, place=Place(place), schema=schema, required=place == "path" or bool(raw.get("required"))
    )


def _body(document: Mapping[str, Any], item: Mapping[str, Any]) -> Iterator[Parameter]:
    if "requestBody" not in item:
        return
    body = _resolved(document, item["requestBody"])
    content = body.get("content") or {}
    if _JSON not in content:
        raise _UnusableError(f"requestBody: is not {_JSON}: only JSON can be sent")
    schema = content[_JSON].get("schema") or {}
    if schema.get("type") != "object" or "properties" not in schema:
        raise _UnusableError("requestBody: must be an object with named properties")
    needed = schema.get("required") or []
    for name, one in schema["properties"].items():
        yield Parameter(name=name, place=Place.BODY, schema=one, required=name in needed)


def _answer_fields(document: Mapping[str, Any], item: Mapping[str, Any]) -> tuple[str, ...]:
    for status, raw in (item.get("responses") or {}).items():
        if str(status).startswith("2"):
            content = _resolved(document, raw).get("content") or {}
            schema = (content.get(_JSON) or {}).get("schema") or {}
            return tuple(schema.get("properties") or ())
    return ()


def _resolved(document: Mapping[str, Any], node: Any, above: tuple[str, ...] = ()) -> Any:
    """Return a node with every reference replaced by what it points at."""
    if isinstance(node, list):
        return [_resolved(document, one, above) for one in node]
    if not isinstance(node, dict):
        return node
    reference = node.get("$ref")
    if not isinstance(reference, str):
        return {key: _resolved(document, one, above) for key, one in node.items()}
    if reference in above:
        raise _UnusableError(f"{reference}: refers to itself: a tool's schema must end somewhere")
    if not reference.startswith("#/"):
        raise _UnusableError(f"{reference}: points out of the document: bundle it into one file")
    target: Any = document
    for part in reference[2:].split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(target, dict) or key not in target:
            raise _UnusableError(f"{reference}: is not in the document: correct the reference")
        target = target[key]
    return _resolved(document, target, (*above, reference))
