"""The charts as releases of helm on a real API server, and the operator as their Deployment says."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from integration.api import Api, Object
from integration.operator_process import OperatorProcess, account_kubeconfig
from support.charts import CRDS, OPERATOR
from whetstone_dev.commands import run
from whetstone_dev.controlplane import ControlPlane
from whetstone_dev.gobuild import HELM, build

CRD_RELEASE = "whetstone-crds"
OPERATOR_RELEASE = "whetstone"


class Releases:
    """Releases in one namespace, which is made with the first.

    Args:
        plane: The control plane.
        api: Its administrator's client.
        namespace: The namespace of the releases.
        folder: For values, credentials and logs.
    """

    def __init__(self, plane: ControlPlane, api: Api, namespace: str, folder: Path) -> None:
        self._plane = plane
        self._api = api
        self.namespace = namespace
        self._folder = folder
        self._folder.mkdir(exist_ok=True)
        self._started = 0

    def helm(self, *arguments: str | Path) -> str:
        """Run helm and return what it says."""
        where = ["--kubeconfig", self._plane.kubeconfig, "--namespace", self.namespace]
        return run([build(HELM), *arguments, *where])

    def put_crds(self, chart: Path = CRDS) -> None:
        """Install or upgrade the resource definitions."""
        self.helm("upgrade", "--install", CRD_RELEASE, chart, "--create-namespace")

    def put_operator(self, values: Mapping[str, Any], chart: Path = OPERATOR) -> None:
        """Install or upgrade the operator."""
        file = self._folder / "values.yaml"
        file.write_text(yaml.safe_dump(dict(values)))
        self.helm("upgrade", "--install", OPERATOR_RELEASE, chart, "--create-namespace", "--values", file)

    def deployment(self) -> Object:
        """Return the operator's Deployment."""
        found = self._api.get("Deployment", "whetstone-operator", namespace=self.namespace)
        assert found is not None, "there is no operator"
        return found

    def operator(self, *, source: Path | None = None) -> OperatorProcess:
        """Start the operator with the account, rights and variables that the release gives it.

        Args:
            source: Checkout of the code to run; None for this one.
        """
        self._started += 1
        folder = self._folder / f"operator-{self._started}"
        folder.mkdir()
        [container] = self.deployment()["spec"]["template"]["spec"]["containers"]
        variables = {
            one["name"]: one.get("value", "") for one in container["env"] if one["name"].startswith("WHETSTONE_")
        }
        process = OperatorProcess(
            kubeconfig=account_kubeconfig(self._plane, self._api, folder, namespace=self.namespace),
            namespace=variables["WHETSTONE_NAMESPACES"],
            log=folder / "operator.log",
            environment={
                **variables,
                "POD_NAMESPACE": self.namespace,
                # As in a pod: without the port that this process listens on.
                "WHETSTONE_OPERATOR_URL": f"http://whetstone-operator.{self.namespace}.svc:8080",
                **({"PYTHONPATH": str(source / "operator")} if source else {}),
            },
        )
        process.start()
        return process

    def remove_all(self) -> None:
        """Uninstall what there is."""
        for release in json.loads(self.helm("list", "--short", "--output", "json")):
            self.helm("uninstall", release)


def aged(folder: Path, *, without: str) -> tuple[Path, Path]:
    """Return copies of the charts (definitions, operator) as an earlier version of them.

    Args:
        folder: Where to.
        without: Field of a ModelServer's spec that the earlier version does not know.
    """
    copies = []
    for chart in (CRDS, OPERATOR):
        copy = shutil.copytree(chart, folder / chart.name)
        about = yaml.safe_load((copy / "Chart.yaml").read_text())
        (copy / "Chart.yaml").write_text(yaml.safe_dump({**about, "version": "0.0.9", "appVersion": "0.0.9"}))
        copies.append(copy)
    file = copies[0] / "templates" / "modelservers.whetstone.dev.yaml"
    definition = yaml.safe_load(file.read_text())
    for version in definition["spec"]["versions"]:
        del version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"][without]
    file.write_text(yaml.safe_dump(definition, sort_keys=False))
    return copies[0], copies[1]
