"""The objects of `examples/tooluse` as kubectl renders them, for the node of the tests."""

import subprocess
from typing import Any

import yaml
from whetstone_dev.cluster import Cluster
from whetstone_dev.places import CHECKOUT

FOLDER = CHECKOUT / "examples" / "tooluse"


def rendered(image: str) -> list[dict[str, Any]]:
    """Return the manifests.

    Args:
        image: Runs the company's service in place of the public image that they name; it has Python.
    """
    command = [Cluster().plane.kubectl, "kustomize", FOLDER]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    manifests: list[dict[str, Any]] = list(yaml.safe_load_all(text))
    for obj in manifests:
        if obj["kind"] in ("Deployment", "Job"):
            for container in obj["spec"]["template"]["spec"]["containers"]:
                container["image"] = image
    return manifests
