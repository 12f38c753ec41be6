"""The page of a kind names all of its fields, and its example is valid."""

import re
from pathlib import Path
from typing import Any

import pytest
from whetstone_api.crdgen import KINDS, resource_schema
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
