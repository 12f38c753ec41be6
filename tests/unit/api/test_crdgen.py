"""The CRD generator: what it writes, what it refuses."""

from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest
import yaml
from pydantic import Field
from whetstone_api.crdgen import (
    KINDS,
    RuledJsonSchema,
    SchemaError,
    crd_yaml,
    generated_files,
    immutability_rules,
    main,
    structural,
)
from whetstone_api.schema import ApiModel, Resource, Rule, RunToEndSpec

CHECKOUT = Path(__file__).parents[3]


class Leaf(ApiModel):
    """A leaf."""

    word: Annotated[str, Field(max_length=8)] = "a"
    """A word."""


def schema_of(model: type[ApiModel], *, defaults: bool = True) -> dict[str, Any]:
    whole = model.model_json_schema(by_alias=True, schema_generator=RuledJsonSchema)
    return structural(whole, definitions=whole.get("$defs", {}), where=model.__name__, defaults=defaults)


def test_generated_files_are_current() -> None:
    assert main(["--check", "--root", str(CHECKOUT)]) == 0


def test_generation_is_byte_stable_and_equal_in_both_places(tmp_path: Path) -> None:
    assert main(["--write", "--root", str(tmp_path)]) == 0
    first = {path: path.read_bytes() for path in tmp_path.rglob("*.yaml")}
    assert main(["--write", "--root", str(tmp_path)]) == 0
    assert first == {path: path.read_bytes() for path in tmp_path.rglob("*.yaml")}
    assert len(first) == 2 * len(KINDS)
    assert len(set(first.values())) == len(KINDS)


def test_a_stale_file_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--write", "--root", str(tmp_path)])
    stale = next(iter(generated_files(tmp_path)))
    stale.write_text("old")
    assert main(["--check", "--root", str(tmp_path)]) == 1
    assert str(stale) in capsys.readouterr().err


def test_optional_becomes_plain_and_nested_defaults_are_written_out() -> None:
    class Outer(ApiModel):
        leaf: Leaf = Leaf()
        """The leaf."""
        maybe: Leaf | None = None
        """Perhaps."""

    properties = schema_of(Outer)["properties"]
    assert properties["leaf"]["default"] == {"word": "a"}
    assert properties["leaf"]["description"] == "The leaf."
    assert properties["maybe"]["type"] == "object"
    assert "default" not in properties["maybe"]
    assert "title" not in str(properties)


def test_status_has_no_defaults() -> None:
    assert "default" not in schema_of(Leaf, defaults=False)["properties"]["word"]


def test_rules_sit_on_their_node() -> None:
    class Ruled(Leaf):
        rules: ClassVar[tuple[Rule, ...]] = (Rule(rule="self.word != 'x'", message="take another word"),)

    assert schema_of(Ruled)["x-kubernetes-validations"] == [
        {"rule": "self.word != 'x'", "message": "take another word"}
    ]


def test_every_field_of_a_run_to_end_spec_is_immutable_but_the_mutable_ones() -> None:
    class Spec(RunToEndSpec):
        mutable = frozenset({"suspend"})
        word: Annotated[str, Field(max_length=8)]
        maybe: Annotated[str, Field(max_length=8)] | None = None
        suspend: bool = False

    by_field = {rule["fieldPath"]: rule["rule"] for rule in immutability_rules(Spec)}
    assert by_field == {
        ".word": "self.word == oldSelf.word",
        ".maybe": "has(self.maybe) == has(oldSelf.maybe) && (!has(self.maybe) || self.maybe == oldSelf.maybe)",
    }


class Unbounded(ApiModel):
    word: str


class Endless(ApiModel):
    words: list[Annotated[str, Field(max_length=8)]]


class Boundless(ApiModel):
    words: dict[str, Annotated[str, Field(max_length=8)]]


class Floating(ApiModel):
    rate: float


class Union(ApiModel):
    either: Leaf | Annotated[str, Field(max_length=8)]


class Shapeless(ApiModel):
    anything: Any


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Unbounded, "Unbounded.word: the field has no maxLength"),
        (Endless, "Endless.words: the field has no maxItems"),
        (Boundless, "Boundless.words: the field has no maxProperties"),
        (Floating, "Floating.rate: floats are not allowed"),
        (Union, "Union.either: a union"),
        (Shapeless, "Shapeless.anything: the field has no type"),
    ],
)
def test_what_has_no_structural_form_is_refused_with_its_place(model: type[ApiModel], words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        schema_of(model)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind_name)
def test_every_field_is_described(kind: Any) -> None:
    def undescribed(node: dict[str, Any], path: str) -> list[str]:
        missing = []
        for name, child in node.get("properties", {}).items():
            if not child.get("description"):
                missing.append(f"{path}.{name}")
            missing += undescribed(child, f"{path}.{name}") + undescribed(child.get("items", {}), f"{path}.{name}[]")
        return missing

    version = yaml.safe_load(crd_yaml(kind))["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    for part in ("spec", "status"):
        assert undescribed(schema["properties"][part], part) == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind_name)
def test_names_columns_and_subresources(kind: Any) -> None:
    spec = yaml.safe_load(crd_yaml(kind))["spec"]
    version = spec["versions"][0]
    assert spec["names"]["categories"] == ["whetstone", "ai"]
    assert [column["name"] for column in version["additionalPrinterColumns"]][:2] == ["Ready", "Reason"]
    assert version["subresources"]["status"] == {}
    assert ("scale" in version["subresources"]) == (kind.kind_name == "ModelServer")


def test_numbers_in_exponent_form_are_quoted_for_yaml_1_2() -> None:
    class Rate(Leaf):
        """A rate."""

        rate: Annotated[str, Field(max_length=8)] = "2e-4"
        """The rate."""

    class Rated(Resource):
        """A kind."""

        kind_name = "Rated"
        plural = "rateds"
        short_names = ()
        spec: Rate
        """What is asked."""
        status: Leaf = Leaf()
        """What is true."""

    assert "default: '2e-4'" in crd_yaml(Rated)
