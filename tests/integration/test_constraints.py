"""The real API server accepts what the schema allows and refuses, in clear words, what it does not."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from integration.api import Api, Object, Refused
from integration.constraints import rules, tooluse
from integration.constraints.objects import VARIANTS, read, steps_of, with_value
from integration.constraints.table import ENUMS, FORMATS, ITEMS, LENGTHS, MEMBERS, RANGES, Format
from whetstone_api.crdgen import KINDS, resource_schema

pytestmark = pytest.mark.integration
NAMESPACE = "default"
KEYWORDS = (
    "enum",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
)


def walk(node: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """Yield every constraint of a schema as (path, keyword); of a CEL rule, the message stands for the keyword."""
    yield from ((path, keyword) for keyword in KEYWORDS if keyword in node)
    yield from ((path, rule["message"]) for rule in node.get("x-kubernetes-validations", ()))
    for name, child in node.get("properties", {}).items():
        yield from walk(child, f"{path}.{name}")
    if "items" in node:
        yield from walk(node["items"], f"{path}[]")
    if "additionalProperties" in node:
        yield from walk(node["additionalProperties"], f"{path}.*")


def tabulated() -> Iterator[tuple[str, str]]:
    """Yield every constraint of the tables as (path, keyword)."""
    yield from ((path, "enum") for path in ENUMS)
    for table, noun in ((RANGES, ""), (ITEMS, "Items"), (MEMBERS, "Properties"), (LENGTHS, "Length")):
        for path, (least, _) in table.items():
            yield path, f"max{noun}" if noun else "maximum"
            if not noun:
                yield path, "minimum"
            elif least:
                yield path, f"min{noun}"
    for path, form in FORMATS.items():
        yield from ((path, "pattern"), (path, "maxLength"))
        if form.shortest:
            yield path, "minLength"


def test_table_is_complete() -> None:
    schema = {one for kind in KINDS for one in walk(resource_schema(kind), kind.kind_name)}
    plain = {one for one in schema if one[1] in KEYWORDS}
    assert plain == set(tabulated())
    unexplained = {
        (path, message)
        for path, message in schema - plain
        if not any(row.node == path and message.startswith(row.message) for row in rules.RULES)
        and not any(
            path == f"{kind}.spec" and message.startswith(f"{field}") and "immutable" in message
            for kind, fields in rules.IMMUTABLE.items()
            for field in fields
        )
        and not any(
            path == kind and message.startswith(f"{field} may change only until")
            for kind, fields in rules.UNTIL_SUCCESS.items()
            for field in fields
        )
    }
    assert not unexplained
    messages = [(path, message) for path, message in schema - plain]
    idle = [row for row in rules.RULES if not any(p == row.node and m.startswith(row.message) for p, m in messages)]
    assert not idle


@pytest.fixture(scope="module")
def stored(api: Api) -> Iterator[None]:
    """One object a kind, so that its status can be replaced."""
    for kind, variants in VARIANTS.items():
        api.create({key: value for key, value in variants[0].items() if key != "status"}, namespace=NAMESPACE)
        assert api.get(kind, variants[0]["metadata"]["name"], namespace=NAMESPACE)
    yield
    for kind, variants in VARIANTS.items():
        api.delete(kind, variants[0]["metadata"]["name"], namespace=NAMESPACE)


def send(api: Api, obj: Object, *, status: bool) -> None:
    """Let the server judge an object without storing it."""
    if status:
        current = api.get(obj["kind"], obj["metadata"]["name"], namespace=NAMESPACE)
        assert current is not None
        api.replace({**current, "status": obj["status"]}, namespace=NAMESPACE, status=True, dry_run=True)
    else:
        fresh = {key: value for key, value in obj.items() if key != "status"}
        fresh["metadata"] = {"generateName": f"{obj['metadata']['name']}-"}
        api.create(fresh, namespace=NAMESPACE, dry_run=True)


def with_companions(obj: Object, path: str, value: Any) -> Object:
    """Return the object with what a value at a path needs elsewhere to be valid."""
    if path.endswith("targets[].adapter"):
        obj["spec"]["adapters"][1]["name"] = value
    if path.endswith("targets[].weight") and path.startswith("spec"):
        obj["spec"]["aliases"][0]["targets"].append({"adapter": "a"})
    if path == "spec.aliases[].targets":
        known = [{**obj["spec"]["adapters"][1], "name": target["adapter"]} for target in value]
        obj["spec"]["adapters"] = known
    if path == "spec.judge.url":
        obj["spec"]["judge"].pop("certificateAuthorityRef", None)
    if path.startswith("spec.passAtK") or path == "spec.gates[].k":
        obj["spec"]["attempts"] = 100
    if path.endswith("gates[].metric") and value != "Mean":
        gate = read(obj, path.removesuffix(".metric"))
        del gate["confidence"]
        gate.update({"k": 1} if value == "PassAtK" else {})
    if path == "spec.evaluation.dataset":
        obj["spec"]["datasets"][1]["name"] = value
    if path == "spec.method" and value == "DPO":
        obj["spec"]["loss"]["target"] = "Assistant"
    if path == "spec.initAdapter.mode" and value == "MergeThenNew":
        obj["spec"]["quantization"] = "None"
    if path == "spec.backend" and value == "Unsloth":
        for name in ("initAdapter", "distributed", "plan"):
            del obj["spec"][name]
    tooluse.with_companions(obj, path, value)
    if path == "spec.concurrency":
        obj["spec"]["shards"] = 1
    if path == "spec.shards":
        obj["spec"]["concurrency"] = 256
    if path == "spec.adapters[].name" and value == "q":
        obj["spec"]["aliases"] = []
    return obj


def judge(api: Api, row: str, value: Any) -> str:
    """Return the server's complaint about a value at a path of the table; empty when it takes it."""
    kind, path = row.split(".", 1)
    obj = with_companions(with_value(kind, path, value), path, value)
    try:
        send(api, obj, status=path.startswith("status"))
    except Refused as error:
        return error.message
    return ""


def shown(row: str) -> str:
    """Return a path as the server writes it in its message, up to the first map key."""
    return row.split(".", 1)[1].replace("[]", "[0]").split(".*")[0]


def assert_refused(api: Api, row: str, value: Any, words: str) -> None:
    """Assert that the server refuses a value, naming the field, with certain words."""
    complaint = judge(api, row, value)
    assert shown(row) in complaint, f"{value!r:.60}: {complaint or 'accepted'}"
    assert words in complaint


@pytest.mark.parametrize("row", ENUMS)
def test_enum(api: Api, stored: None, row: str) -> None:
    for value in ENUMS[row]:
        assert judge(api, row, value) == ""
    other = "Other" if isinstance(ENUMS[row][0], str) else max(ENUMS[row]) + 1
    assert_refused(api, row, other, "Unsupported value")


@pytest.mark.parametrize("row", RANGES)
def test_range(api: Api, stored: None, row: str) -> None:
    least, most = RANGES[row]
    assert judge(api, row, least) == judge(api, row, most) == ""
    assert_refused(api, row, least - 1, f"should be greater than or equal to {least}")
    assert_refused(api, row, most + 1, f"should be less than or equal to {most}")


def members(row: str, count: int) -> list[Any]:
    """Return so many different valid items for a list of the table."""
    kind, path = row.split(".", 1)
    for variant in VARIANTS[kind]:
        try:
            first = read(variant, path)[0]
        except (KeyError, IndexError):
            continue
        items = [copy.deepcopy(first) for _ in range(count)]
        types = ENUMS.get(f"{row}[].type", ())
        stem = "NCCL_" if row.endswith("distributed.env") else "n"
        for number, item in enumerate(items):
            if types:
                item["type"] = types[number]
                continue
            for key in ("name", "type", "adapter"):
                if isinstance(item, dict) and key in item:
                    item[key] = f"{stem}{number}"
        return items
    raise KeyError(row)


@pytest.mark.parametrize("row", ITEMS)
def test_item_count(api: Api, stored: None, row: str) -> None:
    least, most = ITEMS[row]
    needed = {"ModelServer.spec.adapters": 1}
    for count in (max(least, needed.get(row, 0)), most):
        items = members(row, count)
        if row == "ModelServer.spec.adapters":
            items[-1]["name"] = "b"
        assert judge(api, row, items) == ""
    if least:
        assert_refused(api, row, [], f"should have at least {least} items")
    assert_refused(api, row, members(row, most + 1), f"must have at most {most} item")


@pytest.mark.parametrize("row", MEMBERS)
def test_member_count(api: Api, stored: None, row: str) -> None:
    least, most = MEMBERS[row]
    value: Any = {} if row.startswith("BenchmarkRun.spec.discipline.") else "1"
    for count in (least, most):
        assert judge(api, row, {f"k{number}": value for number in range(count)}) == ""
    if least:
        assert_refused(api, row, {}, f"should have at least {least} properties")
    assert_refused(api, row, {f"k{number}": value for number in range(most + 1)}, f"must have at most {most} item")


@pytest.mark.parametrize("row", LENGTHS)
def test_length(api: Api, stored: None, row: str) -> None:
    least, most = LENGTHS[row]
    assert judge(api, row, "a" * least) == judge(api, row, "a" * most) == ""
    if least:
        assert_refused(api, row, "", f"should be at least {least} chars long")
    assert_refused(api, row, "a" * (most + 1), f"may not be more than {most} bytes")


@pytest.mark.parametrize("row", FORMATS)
def test_format(api: Api, stored: None, row: str) -> None:
    form: Format = FORMATS[row]
    assert max(map(len, form.accept)) == form.longest
    for value in form.accept:
        if value == "pvc://c/p" or not row.endswith("output.uri"):
            assert judge(api, row, value) == "", value
    for value in form.reject:
        assert_refused(api, row, value, "should match")
    assert_refused(api, row, form.accept[-1] + "0", f"may not be more than {form.longest} bytes")
    if form.shortest:
        assert_refused(api, row, form.accept[0][: form.shortest - 1], f"should be at least {form.shortest} chars long")


@pytest.mark.parametrize("row", rules.RULES, ids=lambda row: f"{row.node}: {row.message}")
def test_rule(api: Api, row: rules.RuleRow) -> None:
    def judged(changes: Any) -> str:
        obj = rules.changed(rules.base(row), changes)
        del obj["status"]
        if "metadata.name" not in changes:
            obj["metadata"]["name"] = "another"
        try:
            api.create(obj, namespace=NAMESPACE, dry_run=True)
        except Refused as error:
            return error.message
        return ""

    for changes in row.accept:
        assert judged(changes) == ""
    for changes in row.reject:
        assert row.message in judged(changes), changes


CHANGES = [(kind, field) for kind, fields in rules.IMMUTABLE.items() for field in fields]


@pytest.mark.parametrize(("kind", "field"), CHANGES)
def test_field_cannot_change(api: Api, stored: None, kind: str, field: str) -> None:
    value = rules.IMMUTABLE[kind][field]
    current = api.get(kind, VARIANTS[kind][0]["metadata"]["name"], namespace=NAMESPACE)
    assert current is not None
    with pytest.raises(Refused, match=rf"{field}\S* is immutable"):
        api.replace(rules.changed(current, {f"spec.{field}": value}), namespace=NAMESPACE, dry_run=True)


@pytest.mark.parametrize(("kind", "field"), [(kind, field) for kind in rules.MUTABLE for field in rules.MUTABLE[kind]])
def test_field_can_change(api: Api, stored: None, kind: str, field: str) -> None:
    current = api.get(kind, VARIANTS[kind][0]["metadata"]["name"], namespace=NAMESPACE)
    assert current is not None
    changes = {f"spec.{field}": rules.MUTABLE[kind][field]}
    if field == "adapters":
        changes["spec.aliases"] = []
    api.replace(rules.changed(current, changes), namespace=NAMESPACE, dry_run=True)


ENDS = [(kind, field) for kind, fields in rules.UNTIL_SUCCESS.items() for field in fields]


@pytest.mark.parametrize(("kind", "field"), ENDS)
def test_field_can_change_until_the_object_is_complete(api: Api, stored: None, kind: str, field: str) -> None:
    name, changes = VARIANTS[kind][0]["metadata"]["name"], {f"spec.{field}": rules.UNTIL_SUCCESS[kind][field]}
    ended = {"type": "Complete", "reason": "Succeeded", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    for status in ("False", "True"):
        told = {"status": {"conditions": [{**ended, "status": status}]}}
        current = api.merge(kind, name, told, namespace=NAMESPACE, status=True)
        complaint = ""
        try:
            api.replace(rules.changed(current, changes), namespace=NAMESPACE, dry_run=True)
        except Refused as error:
            complaint = error.message
        assert (f"{field} may change only until the object is Complete" in complaint) is (status == "True"), complaint
    api.merge(kind, name, {"status": {"conditions": None}}, namespace=NAMESPACE, status=True)


@pytest.mark.parametrize("kind", VARIANTS)
def test_every_base_object_is_accepted(api: Api, kind: str) -> None:
    for variant in VARIANTS[kind]:
        send(api, variant, status=False)


@pytest.mark.parametrize("kind", VARIANTS)
def test_unknown_field_is_refused(api: Api, kind: str) -> None:
    obj = rules.changed(VARIANTS[kind][0], {"spec.colour": "red"})
    with pytest.raises(Refused, match=r'unknown field "spec.colour"'):
        send(api, obj, status=False)


@pytest.mark.parametrize(
    "row",
    [
        row
        for row in ITEMS
        if row
        in {f"ModelServer.spec.{x}" for x in ("adapters", "aliases", "adapterStores")}
        | {f"LoRATrainingJob.spec.{x}" for x in ("datasets", "output.push", "preference.losses")}
    ],
)
def test_two_entries_of_one_name_are_refused(api: Api, row: str) -> None:
    assert "Duplicate value" in judge(api, row, [members(row, 1)[0]] * 2)


def test_defaults_are_written_into_a_least_object(api: Api) -> None:
    least = {
        "apiVersion": "whetstone.dev/v1alpha1",
        "kind": "LoRATrainingJob",
        "metadata": {"name": "least"},
        "spec": {
            "baseModel": {"source": {"uri": "pvc://models/base"}},
            "datasets": [{"name": "d", "source": {"uri": "pvc://data/train.jsonl"}}],
            "workspace": {"claimName": "work"},
            "output": {"adapter": {"uri": "pvc://adapters/a"}},
        },
    }
    spec = api.create(least, namespace=NAMESPACE, dry_run=True)["spec"]
    assert spec["lora"] == {"rank": 16, "alpha": 32, "dropout": "0", "rsLora": False}
    assert spec["loss"] == {"target": "Assistant", "maskSuboptimal": False}
    assert "learningRate" not in spec["hyperparameters"]
    assert spec["method"] == "SFT"
    pairs = {**least, "spec": {**least["spec"], "method": "DPO", "preference": {}}}  # type: ignore[dict-item]
    preference = api.create(pairs, namespace=NAMESPACE, dry_run=True)["spec"]["preference"]
    assert preference == {"granularity": "Step", "losses": [{"type": "Sigmoid", "weight": "1"}], "beta": "0.1"}
    assert spec["checkpoint"] == {"everySteps": 50, "keep": 2}
    assert spec["suspend"] is False


def test_steps_of_reads_lists_and_maps() -> None:
    assert steps_of("spec.a[].b.*") == ["spec", "a", "[]", "b", "*"]
