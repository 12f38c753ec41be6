"""The charts as helm renders them."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from whetstone_dev.commands import run
from whetstone_dev.gobuild import HELM, build
from whetstone_dev.places import CHECKOUT
from whetstone_dev.versions import KUBERNETES

CHARTS = CHECKOUT / "charts"
OPERATOR = CHARTS / "whetstone"
CRDS = CHARTS / "whetstone-crds"
SYSTEM_NAMESPACE = "whetstone-system"


def rendered(chart: Path, values: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return the objects of a chart.

    Args:
        chart: Its folder.
        values: What differs from its defaults.

    Raises:
        DevError: helm refuses; the message holds its words.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(dict(values or {}), file)
        file.flush()
        arguments = ["--namespace", SYSTEM_NAMESPACE, "--kube-version", KUBERNETES, "--values", file.name]
        text = run([build(HELM), "template", "whetstone", chart, *arguments])
    return [one for one in yaml.safe_load_all(text) if one]


def changed(values: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return values with one of them changed; the given ones stay as they are.

    Args:
        values: The values.
        path: The place of the one, as in `operator.workers`.
        value: What it becomes.
    """
    name, _, rest = path.partition(".")
    return {**values, name: changed(values.get(name) or {}, rest, value) if rest else value}
