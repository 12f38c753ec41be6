"""Checks manifests against the models and the rules of the CRDs, with the same verdict as the API server's.

Transition rules (what may change) need the stored object and stay with the API server.
"""

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import cel
import yaml
from pydantic import ValidationError
from whetstone_api.crdgen import KINDS, resource_schema
from whetstone_api.schema import Resource
from whetstone_api.vocabulary import API_VERSION, GROUP

_KINDS: dict[str, type[Resource]] = {kind.kind_name: kind for kind in KINDS}
Node = Mapping[str, Any]


class _Loader(yaml.SafeLoader):
    """Reads scalars as the API server does: `2e-4` without quotes is a number there, though not in YAML 1.1."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


class ManifestError(Exception):
    """A text is no YAML, or one of its documents is no object."""


@dataclass
class Report:
    """What was found in one text.

    Args:
        ours: Objects of Whetstone's kinds.
        valid: Those of them without a problem.
        skipped: Objects of other kinds.
        problems: One sentence each, with object and field.
    """

    ours: int = 0
    valid: int = 0
    skipped: int = 0
    problems: list[str] = field(default_factory=list)


def check_text(text: str) -> Report:
    """Check every object of a YAML text.

    Raises:
        ManifestError: The text is no YAML, or a document is no object.
    """
    report = Report()
    for document in _documents(text):
        if not _is_ours(document):
            report.skipped += 1
            continue
        problems = check_object(document)
        name = (document.get("metadata") or {}).get("name", "?")
        report.ours += 1
        report.valid += not problems
        report.problems += [f"{document['kind']}/{name}: {problem}" for problem in problems]
    return report


def read_objects(text: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the objects of Whetstone's kinds of a YAML text, and what is wrong with them.

    Raises:
        ManifestError: The text is no YAML, or a document is no object.
    """
    ours = [document for document in _documents(text) if _is_ours(document)]
    return ours, check_text(text).problems


def _documents(text: str) -> list[dict[str, Any]]:
    try:
        documents = [document for document in yaml.load_all(text, Loader=_Loader) if document is not None]
    except yaml.YAMLError as error:
        raise ManifestError(f"not YAML: {error}") from error
    if any(not isinstance(document, dict) or "kind" not in document for document in documents):
        raise ManifestError("a document is no Kubernetes object; each needs apiVersion, kind and metadata")
    return documents


def _is_ours(document: Mapping[str, Any]) -> bool:
    return str(document.get("apiVersion", "")).startswith(f"{GROUP}/")


def check_object(document: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with one object of the API group, each as `field: what; fix`.

    Args:
        document: The object as it would be applied.
    """
    kind = _KINDS.get(str(document["kind"]))
    if kind is None:
        return [f"kind: {document['kind']} is no kind of {GROUP}; use one of {', '.join(_KINDS)}"]
    if document["apiVersion"] != API_VERSION:
        return [f"apiVersion: {document['apiVersion']} is not served; use {API_VERSION}"]
    schema = _schema(kind)
    problems = list(_unknown(document, schema, ""))
    completed = {**document, "metadata": {"namespace": "default", **(document.get("metadata") or {})}}
    try:
        resource = kind.model_validate_json(json.dumps(completed, default=str), strict=True)
    except ValidationError as error:
        # Of a union's branches the last one, text, says most.
        by_path = {_path(one["loc"]): one["msg"] for one in error.errors()}
        return problems + [f"{path}: {message}" for path, message in by_path.items()]
    whole = {**completed, "spec": resource.to_wire()["spec"]}
    problems += _duplicates(whole, schema, "")
    problems += _broken_rules(whole, schema, "")
    return problems


@cache
def _schema(kind: type[Resource]) -> dict[str, Any]:
    return resource_schema(kind)


def _path(location: tuple[int | str, ...]) -> str:
    """Return a path as the API server writes it, without the branches of unions that pydantic adds."""
    text = ""
    for step in location:
        if isinstance(step, int):
            text += f"[{step}]"
        elif step not in ("int", "str", "constrained-str"):
            text += f".{step}" if text else step
    return text


def _children(value: Any, schema: Node, path: str) -> Iterator[tuple[Any, Node, str]]:
    """Yield what a value holds, with schema and path."""
    if isinstance(value, Mapping):
        for name, child in schema.get("properties", {}).items():
            if value.get(name) is not None:
                yield value[name], child, f"{path}.{name}" if path else name
    elif isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            yield item, schema["items"], f"{path}[{number}]"


def _unknown(value: Any, schema: Node, path: str) -> Iterator[str]:
    if isinstance(value, Mapping) and "properties" in schema:
        known = schema["properties"]
        for name in value:
            if name not in known:
                near = difflib.get_close_matches(str(name), known, n=1)
                hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"
                yield f"{path}.{name}".lstrip(".") + f": unknown field{hint}"
    for child, node, below in _children(value, schema, path):
        yield from _unknown(child, node, below)


def _duplicates(value: Any, schema: Node, path: str) -> Iterator[str]:
    if isinstance(value, list) and schema.get("x-kubernetes-list-type") == "map":
        keys = schema["x-kubernetes-list-map-keys"]
        seen = set()
        for number, item in enumerate(value):
            identity = tuple(item.get(key) for key in keys)
            if identity in seen:
                yield f"{path}[{number}]: {' and '.join(map(str, identity))} is there twice; rename one of the two"
            seen.add(identity)
    for child, node, below in _children(value, schema, path):
        yield from _duplicates(child, node, below)


def _broken_rules(value: Any, schema: Node, path: str) -> Iterator[str]:
    for rule in schema.get("x-kubernetes-validations", ()):
        if "oldSelf" not in rule["rule"] and not cel.evaluate(rule["rule"], _context(value)):
            yield f"{path}: {rule['message']}" if path else rule["message"]
    for child, node, below in _children(value, schema, path):
        yield from _broken_rules(child, node, below)


def _context(value: Any) -> cel.Context:
    """Return what a rule sees: `self`, and those of Kubernetes' own functions that our rules use."""
    context = cel.Context()
    context.add_variable("self", value)
    context.add_function("find", _find)
    context.add_function("replace", str.replace)
    return context


def _find(text: str, pattern: str) -> str:
    """Return the first part of a text that matches a pattern; empty where none does."""
    found = re.search(pattern, text)
    return found[0] if found else ""
