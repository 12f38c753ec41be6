"""Generator of the CRDs: turns the resource models into `CustomResourceDefinition` YAML.

Run `python -m whetstone_api.crdgen --write` after a change of a model, `--check` to see whether the files are current.
The same bytes go to `crds/` and to `charts/whetstone-crds/templates/`.

JSON Schema as pydantic writes it is not what Kubernetes takes ("structural schemas": no references, no unions, OpenAPI
3.0 keywords). `structural` does that translation and refuses what it cannot translate, and what would make the API
server refuse the CRD or a user's object later: unbounded strings, lists and maps (CEL cost budget), floats (API
conventions).
"""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import yaml
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode
from pydantic_core import core_schema

from whetstone_api.benchmarkrun import BenchmarkRun
from whetstone_api.generated import write_or_check
from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.modelserver import ModelServer
from whetstone_api.schema import NOT_OBSERVED, ApiModel, PrinterColumn, Resource, Rule, RunToEndSpec
from whetstone_api.vocabulary import GROUP, MAX_OBJECT_NAME, VERSION, Label

KINDS: tuple[type[Resource], ...] = (BenchmarkRun, LoRATrainingJob, ModelServer)
CATEGORIES = ("whetstone", "ai")
HEADER = "# Generated from the models in operator/whetstone_api by `make generate`. Do not edit.\n"

NAME_RULES = (
    Rule(
        rule=f"self.metadata.name.size() <= {MAX_OBJECT_NAME}",
        message=f"metadata.name must be at most {MAX_OBJECT_NAME} characters; children add a suffix to it",
    ),
    Rule(
        rule="self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        message="metadata.name must start with a letter and hold only a-z, 0-9 and -; children are named after it",
    ),
)
KEPT_KEYWORDS = (
    "type",
    "description",
    "default",
    "enum",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
)
PRESERVE = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
BOUNDS = {"string": "maxLength", "array": "maxItems"}

Node = dict[str, Any]


class SchemaError(Exception):
    """A model cannot be expressed as a structural schema; the message names the place and the fix."""


class RuledJsonSchema(GenerateJsonSchema):
    """pydantic's JSON Schema with the CEL rules of every `ApiModel`."""

    def model_schema(self, schema: core_schema.ModelSchema) -> dict[str, Any]:
        """Return the schema of a model with its `x-kubernetes-validations`."""
        result = super().model_schema(schema)
        model = schema["cls"]
        if issubclass(model, ApiModel):
            rules = [{"rule": rule.rule, "message": rule.message} for rule in model.rules]
            if issubclass(model, RunToEndSpec):
                rules += immutability_rules(model)
            if rules:
                result["x-kubernetes-validations"] = rules
        return result


def immutability_rules(model: type[RunToEndSpec]) -> list[dict[str, str]]:
    """Return one transition rule a field that refuses any change of it, also its addition and removal.

    Args:
        model: The spec; the fields in its `mutable` and `until_success` get no rule.
    """
    rules = []
    free = model.mutable | model.until_success
    for field in model.model_fields.values():
        name = cast("str", field.alias)
        if name in free:
            continue
        same = f"self.{name} == oldSelf.{name}"
        if not field.is_required():
            same = _unchanged(name)
        mutable = " and ".join(sorted(free))
        message = f"{name} is immutable (only {mutable} may change); create another object for other work"
        rules.append({"rule": same, "message": message, "fieldPath": f".{name}", "reason": "FieldValueForbidden"})
    return rules


def success_rules(model: type[RunToEndSpec]) -> list[Rule]:
    """Return the rules of a whole object that refuse, once it is Complete, a change of what may change until then.

    Args:
        model: The spec; its `until_success` fields are optional.
    """
    complete = "oldSelf.status.conditions.exists(one, one.type == 'Complete' && one.status == 'True')"
    ended = f"has(oldSelf.status) && has(oldSelf.status.conditions) && {complete}"
    message = "may change only until the object is Complete: nothing runs any more; create another object"
    return [
        Rule(rule=f"!({ended}) || ({_unchanged(name, parent='.spec')})", message=f"{name} {message}")
        for name in sorted(model.until_success)
    ]


def _unchanged(name: str, *, parent: str = "") -> str:
    """Return the rule that an optional field is as it was, also in being there."""
    now, before = f"self{parent}.{name}", f"oldSelf{parent}.{name}"
    return f"has({now}) == has({before}) && (!has({now}) || {now} == {before})"


def structural(node: Mapping[str, Any], *, definitions: Mapping[str, Node], where: str, defaults: bool = True) -> Node:
    """Translate a JSON Schema node of pydantic into a structural schema.

    Args:
        node: The node.
        definitions: What `$ref`s point into (`$defs`).
        where: Path of the node, for messages (`ModelServer.spec.model`).
        defaults: Whether defaults are kept; a status has none.

    Raises:
        SchemaError: The node has no structural form, or lacks a bound.
    """
    flat = _single(_inlined(node, definitions=definitions), definitions=definitions, where=where)
    result: Node = {key: flat[key] for key in KEPT_KEYWORDS if key in flat}
    result |= {key: value for key, value in flat.items() if key.startswith("x-kubernetes-")}
    for keyword in ("Minimum", "Maximum"):
        if f"exclusive{keyword}" in flat:
            result[keyword.lower()] = flat[f"exclusive{keyword}"]
            result[f"exclusive{keyword}"] = True
    if "const" in flat:
        result["enum"] = [flat["const"]]
    if "default" in result:
        result["default"] = _without_nulls(result["default"])
        if not defaults or result["default"] is None:
            del result["default"]
    _add_children(result, flat, definitions=definitions, where=where, defaults=defaults)
    _refuse(result, where=where)
    return result


def _inlined(node: Mapping[str, Any], *, definitions: Mapping[str, Node]) -> Node:
    """Return the node with its `$ref` replaced by what it names; the node's own keywords win."""
    reference = node.get("$ref")
    if reference is None:
        return dict(node)
    own = {key: value for key, value in node.items() if key != "$ref"}
    return _inlined(definitions[reference.rsplit("/", 1)[-1]], definitions=definitions) | own


def _single(flat: Node, *, definitions: Mapping[str, Node], where: str) -> Node:
    """Return the node without `anyOf`: an optional becomes plain, int or string becomes int-or-string."""
    if "anyOf" not in flat:
        return _mixed(flat)
    branches = [_inlined(branch, definitions=definitions) for branch in flat["anyOf"]]
    branches = [branch for branch in branches if branch.get("type") != "null"]
    own = {key: value for key, value in flat.items() if key not in ("anyOf", "title")}
    if len(branches) == 1:
        return _single(branches[0], definitions=definitions, where=where) | own
    types = {branch.get("type") for branch in branches}
    if types != {"integer", "string"}:
        raise SchemaError(
            f"{where}: a union of {sorted(map(str, types))} has no structural form; use a field a variant"
        )
    bounds = {key: value for branch in branches for key, value in branch.items() if key not in ("type", "title")}
    return bounds | own | INT_OR_STRING


def _mixed(flat: Node) -> Node:
    """Return a node whose values are numbers and texts (`Literal["Auto", 1]`) as int-or-string."""
    kinds = {type(value) for value in flat.get("enum", ())}
    return flat | INT_OR_STRING if kinds == {int, str} and "type" not in flat else flat


def _add_children(result: Node, flat: Node, *, definitions: Mapping[str, Node], where: str, defaults: bool) -> None:
    """Translate properties, items and map values of `flat` into `result`."""
    if flat.get("x-kubernetes-int-or-string"):
        result["anyOf"] = flat["anyOf"]
    if "properties" in flat:
        result["properties"] = {
            name: structural(child, definitions=definitions, where=f"{where}.{name}", defaults=defaults)
            for name, child in flat["properties"].items()
        }
        if flat.get("required"):
            result["required"] = list(flat["required"])
    elif isinstance(flat.get("additionalProperties"), Mapping):
        result["additionalProperties"] = structural(
            flat["additionalProperties"], definitions=definitions, where=f"{where}.*", defaults=defaults
        )
    if "items" in flat:
        result["items"] = structural(flat["items"], definitions=definitions, where=f"{where}[]", defaults=defaults)


def _refuse(result: Node, *, where: str) -> None:
    """Raise for what the API server would refuse, and for what our conventions forbid."""
    kind = result.get("type")
    if result.get("x-kubernetes-int-or-string"):
        kind = "string"
    if kind is None:
        raise SchemaError(f"{where}: the field has no type; give it one")
    if kind == "number":
        raise SchemaError(f"{where}: floats are not allowed in an API; use DecimalString")
    bound = "maxProperties" if "additionalProperties" in result else BOUNDS.get(kind)
    if bound and bound not in result and "enum" not in result:
        raise SchemaError(f"{where}: the field has no {bound}; give it one, for the cost budget of CEL")
    if kind == "object" and not {"properties", "additionalProperties", PRESERVE} & result.keys():
        raise SchemaError(f"{where}: the object has no fields; give it some")


def _without_nulls(value: Any) -> Any:
    """Return a JSON value without members that are null."""
    if isinstance(value, dict):
        return {key: _without_nulls(member) for key, member in value.items() if member is not None}
    if isinstance(value, list):
        return [_without_nulls(member) for member in value]
    return value


def resource_schema(kind: type[Resource]) -> Node:
    """Return the structural schema of a whole object.

    Raises:
        SchemaError: A model cannot be expressed.
    """
    mode: JsonSchemaMode = "validation"
    whole = kind.model_json_schema(by_alias=True, schema_generator=RuledJsonSchema, mode=mode)
    definitions = whole["$defs"]
    parts = {
        part: structural(
            whole["properties"][part],
            definitions=definitions,
            where=f"{kind.kind_name}.{part}",
            defaults=part == "spec",
        )
        for part in ("spec", "status")
    }
    parts["status"]["default"] = {"observedGeneration": NOT_OBSERVED}
    spec = kind.model_fields["spec"].annotation
    rules = [*NAME_RULES, *(success_rules(spec) if isinstance(spec, type) and issubclass(spec, RunToEndSpec) else [])]
    return {
        "description": whole["description"],
        "type": "object",
        "required": ["spec"],
        "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
        | parts,
        "x-kubernetes-validations": [{"rule": rule.rule, "message": rule.message} for rule in rules],
    }


def _column(column: PrinterColumn) -> Node:
    wire: Node = {"name": column.name, "type": column.type, "jsonPath": column.json_path}
    if column.priority:
        wire["priority"] = column.priority
    if column.description:
        wire["description"] = column.description
    return wire


def custom_resource_definition(kind: type[Resource]) -> Node:
    """Return the CRD of a kind as an API object.

    Raises:
        SchemaError: A model cannot be expressed as a structural schema.
    """
    version: Node = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [_column(column) for column in kind.columns],
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": resource_schema(kind)},
    }
    if kind.scale:
        version["subresources"]["scale"] = dict(kind.scale)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{kind.plural}.{GROUP}",
            "annotations": {"helm.sh/resource-policy": "keep"},
            "labels": {Label.PART_OF.value: "whetstone"},
        },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind.kind_name,
                "listKind": f"{kind.kind_name}List",
                "plural": kind.plural,
                "singular": kind.kind_name.lower(),
                "shortNames": list(kind.short_names),
                "categories": list(CATEGORIES),
            },
            "versions": [version],
        },
    }


class _PlainDumper(yaml.SafeDumper):
    """Writes every value in full: anchors are hard to read and not every tool follows them."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature is PyYAML's
        """Never write an alias."""
        return True


def _represent_text(dumper: _PlainDumper, text: str) -> yaml.ScalarNode:
    """Quote text that YAML 1.2 reads as a number though PyYAML (YAML 1.1) does not, such as `2e-4`."""
    quoted = "'" if re.fullmatch(r"[-+]?[0-9.]+[eE][-+]?[0-9]+", text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=quoted)


_PlainDumper.add_representer(str, _represent_text)


def crd_yaml(kind: type[Resource]) -> str:
    """Return the CRD of a kind as YAML, byte-stable.

    Raises:
        SchemaError: A model cannot be expressed, or the text would be read as a template by Helm.
    """
    definition = custom_resource_definition(kind)
    text = yaml.dump(definition, Dumper=_PlainDumper, sort_keys=False, width=110, allow_unicode=True)
    if "{{" in text:
        raise SchemaError(f"{kind.kind_name}: a description holds '{{{{', which Helm reads as a template; reword it")
    return HEADER + text


def generated_files(root: Path) -> dict[Path, str]:
    """Return the content of every generated file by its path.

    Args:
        root: The checkout.
    """
    folders = (root / "crds", root / "charts" / "whetstone-crds" / "templates")
    return {folder / f"{kind.plural}.{GROUP}.yaml": crd_yaml(kind) for kind in KINDS for folder in folders}


def main(arguments: list[str] | None = None) -> int:
    """Write the generated files, or tell whether they are current.

    Args:
        arguments: Command line; that of the process when absent.
    """
    return write_or_check(generated_files, about="Generate the CRDs.", arguments=arguments)


if __name__ == "__main__":
    sys.exit(main())
