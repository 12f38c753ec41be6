"""Installs the two charts with real helm, as a user would."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whetstone_dev.commands import DevError, run
from whetstone_dev.demo.kube import Kube
from whetstone_dev.demo.plan import namespace, system_namespace
from whetstone_dev.gobuild import HELM, build
from whetstone_dev.places import BUILD, CHECKOUT

SYSTEM_NAMESPACE = "whetstone-system"
CRDS, OPERATOR = "whetstone-crds", "whetstone"
"""Names of the releases."""
_RELEASE_LABEL = "installed-by=whetstone-demo"
"""By it the demo knows releases of its own, which it may replace and uninstall."""
CHART_IMAGES = {
    "operator": "operator",
    "server": "server",
    "trainer": "trainer",
    "benchmark": "benchmark",
    "engine": "engine-cpu",
}
"""Name of the image by its key in the chart's values."""


def install(
    kubeconfig: Path, *, images: dict[str, str], served: list[str], further: Mapping[str, Any] | None = None
) -> None:
    """Install or upgrade CRDs and operator.

    Args:
        kubeconfig: The cluster.
        images: Full image reference by name.
        served: Namespaces in which BenchmarkRuns may run, made if they do not exist; those of an earlier
            installation stay, as long as they exist.
        further: Other values of the chart.

    Raises:
        DevError: helm failed; the message holds its words.
    """
    helm = _helm(kubeconfig)
    kube = Kube.connect(kubeconfig)
    if not _exists(kube, SYSTEM_NAMESPACE):
        kube.apply(system_namespace(SYSTEM_NAMESPACE))
    for name in served:
        kube.apply(namespace(name))
    before = [name for name in _served_before(helm) if _exists(kube, name)]
    values: dict[str, Any] = {
        **(further or {}),
        "images": {key: images[name] for key, name in CHART_IMAGES.items()},
        "servedNamespaces": sorted({*served, *before}),
    }
    path = BUILD / "demo" / "values.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values, indent=2))
    for command in upgrades(kubeconfig, path):
        run(command)


def upgrades(kubeconfig: Path, values: Path) -> list[list[str]]:
    """Return the two helm commands; `values` is the file that the chart `whetstone` gets."""
    upgrade = [*_helm(kubeconfig), "upgrade", "--install", "--wait", "--timeout", "5m", "--labels", _RELEASE_LABEL]
    return [
        [*upgrade, "--take-ownership", CRDS, str(CHECKOUT / "charts" / "whetstone-crds")],
        [*upgrade, OPERATOR, str(CHECKOUT / "charts" / "whetstone"), "--values", str(values)],
    ]


def releases(kubeconfig: Path, *, demo_only: bool) -> list[str]:
    """Return the names of Whetstone's releases, those that the demo made or all."""
    selector = ["--selector", _RELEASE_LABEL] if demo_only else []
    found = json.loads(run([*_helm(kubeconfig), "list", "--all", "--output", "json", *selector]))
    return sorted({item["name"] for item in found} & {CRDS, OPERATOR})


def uninstall(kubeconfig: Path) -> list[str]:
    """Uninstall the releases that the demo made; returns their names. The CRDs stay."""
    names = releases(kubeconfig, demo_only=True)
    for name in names:
        run([*_helm(kubeconfig), "uninstall", name, "--wait", "--timeout", "5m"])
    return names


def _helm(kubeconfig: Path) -> list[str]:
    return [str(build(HELM)), "--kubeconfig", str(kubeconfig), "--namespace", SYSTEM_NAMESPACE]


def _exists(kube: Kube, name: str) -> bool:
    found = kube.get("v1", "Namespace", name=name)
    return found is not None and not found["metadata"].get("deletionTimestamp")


def _served_before(helm: list[str]) -> list[str]:
    try:
        values = json.loads(run([*helm, "get", "values", "whetstone", "--output", "json"]))
    except DevError:
        return []
    served: list[str] = (values or {}).get("servedNamespaces") or []
    return served
