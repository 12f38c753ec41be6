"""docs/security.md names tests that exist, and what it says of the schema is so."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from whetstone_api.crdgen import KINDS, resource_schema

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "security.md").read_text()
NAMED = sorted(set(re.findall(r"`(test_\w+\.py)::(\w+)`", PAGE)))
PODS_OWN = "podTemplate"
"""Kubernetes' own form: an affinity may look at pods of other namespaces, and reaches none."""


def fields(node: dict[str, Any], path: str = "spec") -> Iterator[str]:
    """Yield the path of every field below a node."""
    for name, child in node.get("properties", {}).items():
        if name != PODS_OWN:
            yield f"{path}.{name}"
            yield from fields(child, f"{path}.{name}")
            yield from fields(child.get("items", {}), f"{path}.{name}[]")


@pytest.mark.parametrize(("file", "name"), NAMED, ids=lambda one: str(one))
def test_every_named_test_exists(file: str, name: str) -> None:
    found = list((ROOT / "tests").rglob(file))

    assert any(re.search(rf"^(async )?def {name}\(", path.read_text(), re.MULTILINE) for path in found)


def test_every_claim_of_a_table_names_a_test() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and line.count("|") == 3]
    claims = [row for row in rows if not row.startswith(("| Claim |", "| --- |"))]

    assert [claim for claim in claims if "`test_" not in claim] == []
    assert len(claims) > 15


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind_name)
def test_no_field_names_another_namespace(kind: Any) -> None:
    schema = resource_schema(kind)["properties"]["spec"]

    assert [path for path in fields(schema) if "namespace" in path.rsplit(".", 1)[-1].lower()] == []
    assert any(path.endswith("Ref") for path in fields(schema))
