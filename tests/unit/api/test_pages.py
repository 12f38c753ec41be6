"""The page of a kind names all of its fields, and its examples are valid."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from whetstone_api.crdgen import KINDS, resource_schema
from whetstone_api.modelserver import ModelServer
from whetstone_api.vocabulary import ConditionType
from whetstone_cli.manifests import check_text

DOCS = Path(__file__).parents[3] / "docs"
SHARED = {"conditions", "observedGeneration"}
"""Status fields of every kind, explained in conditions.md."""


def names(node: dict[str, Any]) -> set[str]:
    """Return the names of all fields below a node."""
    found: set[str] = set()
    for name, child in node.get("properties", {}).items():
        found |= {name} | names(child) | names(child.get("items", {}))
    return found


def page(kind: Any) -> str:
    return (DOCS / f"{kind.kind_name.lower()}.md").read_text()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind_name)
def test_every_field_is_on_the_page(kind: Any) -> None:
    schema = resource_schema(kind)["properties"]
    mentioned = set(re.findall(r"[A-Za-z]+", " ".join(re.findall(r"`([^`]+)`", page(kind)))))
    assert names(schema["spec"]) - mentioned == set()
    assert set(schema["status"]["properties"]) - SHARED - mentioned == set()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind_name)
def test_the_example_comes_first_and_is_valid(kind: Any) -> None:
    lines = page(kind).splitlines()[2:]
    end = next(number for number, line in enumerate(lines) if line and not line.startswith("    "))
    report = check_text("\n".join(line[4:] for line in lines[:end]))
    assert (report.valid, report.problems) == (1, [])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind_name)
def test_only_conditions_of_the_vocabulary_are_explained(kind: Any) -> None:
    table = page(kind).split("## Conditions", 1)[1].split("\n\n", 2)[1]
    cells = [line.split("|")[1] for line in table.splitlines()[2:]]
    words = {word for cell in cells for word in re.findall(r"`(\w+)`", cell)}
    assert words <= {member.value for member in ConditionType}
    assert words


def blocks(text: str) -> Iterator[Any]:
    """Yield the indented code of a page that is YAML, parsed."""
    for block in re.findall(r"(?:^(?:    .*)?\n)+", text, re.MULTILINE):
        try:
            yield yaml.safe_load(re.sub(r"^    ", "", block, flags=re.MULTILINE))
        except yaml.YAMLError:
            continue


def paths(node: dict[str, Any], value: Any = None, *, given: bool = False, path: str = "") -> set[str]:
    """Return the paths of all fields below a node, or of those that a value gives."""
    if given and isinstance(value, list):
        return {found for item in value for found in paths(node.get("items", {}), item, given=True, path=path)}
    found: set[str] = set()
    for name, child in node.get("properties", {}).items():
        if given and not (isinstance(value, dict) and name in value):
            continue
        below = value[name] if given else None
        where = f"{path}.{name}"
        found |= {where} | paths(child, below, given=given, path=where)
        if not given:
            found |= paths(child.get("items", {}), path=where)
    return found


def test_examples_of_a_server_show_every_field_and_are_valid() -> None:
    schema = resource_schema(ModelServer)["properties"]["spec"]
    shown: set[str] = set()
    for block in blocks(page(ModelServer)):
        whole = isinstance(block, dict) and block.get("kind") == "ModelServer"
        if whole:
            report = check_text(yaml.safe_dump(block))
            assert (report.valid, report.problems) == (1, [])
        shown |= paths(schema, block["spec"] if whole else block, given=True)
    assert paths(schema) - shown == set()
