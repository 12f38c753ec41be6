"""The charts' READMEs, made from the comments of their values: `make generate` writes them.

A value's comment is what stands above it, without an empty line between. A map whose own values have comments is a
group of values; any other map is one value.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from whetstone_api.generated import write_or_check

from whetstone_dev.commands import DevError

_INSTALLATION = "../../docs/installation.md"


@dataclass(frozen=True)
class Value:
    """One value of a chart.

    Args:
        path: Its place, as in `operator.workers`.
        default: What it is unless somebody says otherwise.
        comment: What it does.
    """

    path: str
    default: Any
    comment: str


def values_of(text: str) -> list[Value]:
    """Return the documented values of a `values.yaml`, in its order.

    Args:
        text: The file.

    Raises:
        DevError: A value has no comment.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        raise DevError("values.yaml holds no map")
    return list(_values(root, text.splitlines(), prefix=""))


def _values(node: yaml.MappingNode, lines: list[str], *, prefix: str) -> Iterator[Value]:
    for key, value in node.value:
        path = f"{prefix}{key.value}"
        if isinstance(value, yaml.MappingNode) and any(_comment(lines, inner) for inner, _ in value.value):
            yield from _values(value, lines, prefix=f"{path}.")
            continue
        comment = _comment(lines, key)
        if not comment:
            raise DevError(f"values.yaml: {path} has no comment above it that says what it does")
        yield Value(path, yaml.safe_load(yaml.serialize(value)), comment)


def _comment(lines: list[str], key: yaml.Node) -> str:
    """Return what stands above a key."""
    found: list[str] = []
    for line in reversed(lines[: key.start_mark.line]):
        words = line.strip()
        if not words.startswith("#"):
            break
        found.insert(0, words.removeprefix("#").strip())
    return " ".join(found)


def accepted(schema: Mapping[str, Any], path: str) -> str:
    """Return what the schema takes for a value, in words.

    Args:
        schema: The chart's `values.schema.json`.
        path: The value's place.

    Raises:
        DevError: The schema does not know it.
    """
    part: Mapping[str, Any] = schema
    for name in path.split("."):
        part = _resolved(schema, part).get("properties", {}).get(name)
        if part is None:
            raise DevError(f"values.schema.json does not know {path}")
    part = _resolved(schema, part)
    if "enum" in part:
        return " \\| ".join(f"`{one}`" for one in part["enum"])
    kind = str(part["type"])
    low, high = part.get("minimum"), part.get("maximum")
    if low is not None:
        return f"{kind}, {low} to {high}" if high is not None else f"{kind}, {low} or more"
    return kind


def _resolved(schema: Mapping[str, Any], part: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = part.get("$ref")
    found: Mapping[str, Any] = schema["definitions"][reference.rpartition("/")[2]] if reference else part
    return found


def page(chart: Path) -> str:
    """Return the README of a chart.

    Args:
        chart: Its folder.

    Raises:
        DevError: A value has no comment, or is not in the schema.
    """
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    text = (chart / "values.yaml").read_text()
    schema = json.loads((chart / "values.schema.json").read_text())
    needed = about["kubeVersion"].removesuffix("-0")
    parts = [
        f"# {about['name']}\n",
        "<!-- Generated from Chart.yaml, values.yaml and values.schema.json by `make generate`. Do not edit. -->\n",
        f"{about['description']}\n",
        f"Chart {about['version']}, Kubernetes {needed}. [How to install, upgrade and remove it]({_INSTALLATION}).\n",
        "## Values\n",
    ]
    rows = [_row(value, accepted(schema, value.path)) for value in values_of(text)]
    if not rows:
        return "\n".join([*parts, "None.\n"])
    return "\n".join([*parts, "| Value | Takes | Default | What it does |", "| --- | --- | --- | --- |", *rows]) + "\n"


def _row(value: Value, takes: str) -> str:
    default = json.dumps(value.default, separators=(", ", ": "))
    return f"| `{value.path}` | {takes} | `{default}` | {value.comment.replace('|', '\\|')} |"


def _files(root: Path) -> dict[Path, str]:
    charts = sorted((root / "charts").glob("*/Chart.yaml"))
    return {chart.parent / "README.md": page(chart.parent) for chart in charts}


def main(arguments: list[str] | None = None) -> int:
    """Write the READMEs, or tell whether they are current.

    Args:
        arguments: Command line; that of the process when absent.
    """
    try:
        return write_or_check(_files, about="Generate the charts' READMEs.", arguments=arguments)
    except DevError as error:
        sys.stderr.write(f"{error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
