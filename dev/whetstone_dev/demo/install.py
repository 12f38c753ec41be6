"""Installs the two charts with real helm, as a user would."""

import json
from pathlib import Path
from typing import Any

from whetstone_dev.commands import DevError, run
from whetstone_dev.demo.kube import Kube
from whetstone_dev.demo.plan import namespace
from whetstone_dev.gobuild import HELM, build
from whetstone_dev.places import BUILD, CHECKOUT

SYSTEM_NAMESPACE = "whetstone-system"
CHART_IMAGES = {
    "operator": "operator",
    "server": "server",
    "trainer": "trainer",
    "benchmark": "benchmark",
    "engine": "engine-cpu",
}
"""Name of the image by its key in the chart's values."""


def install(kubeconfig: Path, *, images: dict[str, str], served: list[str]) -> None:
    """Install or upgrade CRDs and operator.

    Args:
        kubeconfig: The cluster.
        images: Full image reference by name.
        served: Namespaces in which BenchmarkRuns may run, made if they do not exist; those of an earlier
            installation stay, as long as they exist.

    Raises:
        DevError: helm failed; the message holds its words.
    """
    helm = [str(build(HELM)), "--kubeconfig", str(kubeconfig), "--namespace", SYSTEM_NAMESPACE]
    kube = Kube.connect(kubeconfig)
    for name in served:
        kube.apply(namespace(name))
    before = [name for name in _served_before(helm) if _exists(kube, name)]
    values: dict[str, Any] = {
        "images": {key: images[name] for key, name in CHART_IMAGES.items()},
        "servedNamespaces": sorted({*served, *before}),
    }
    path = BUILD / "demo" / "values.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values, indent=2))
    upgrade = [*helm, "upgrade", "--install", "--create-namespace", "--wait", "--timeout", "5m"]
    run([*upgrade, "--take-ownership", "whetstone-crds", str(CHECKOUT / "charts" / "whetstone-crds")])
    run([*upgrade, "whetstone", str(CHECKOUT / "charts" / "whetstone"), "--values", str(path)])


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
