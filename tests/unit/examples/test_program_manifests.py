"""The manifests of the examples that run a program: it is the file beside them, and its pod is a restricted one."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from whetstone_dev.places import CHECKOUT

EXAMPLES = CHECKOUT / "examples"


def documents(path: Path) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(path.read_text()) if one]


@pytest.mark.parametrize(
    ("folder", "manifest", "script"),
    [("phase-adapters", "router.yaml", "router.py"), ("toolshim", "shim.yaml", "shim.py")],
)
def test_the_program_finds_its_server_and_its_aliases(folder: str, manifest: str, script: str) -> None:
    deployment, service = documents(EXAMPLES / folder / manifest)
    (server,) = documents(EXAMPLES / folder / "server.yaml")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"] == ["python3", f"/etc/program/{script}"]
    assert (EXAMPLES / folder / script).is_file()
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]
    given = {one["name"]: one["value"] for one in container["env"]}
    assert given.pop("UPSTREAM") == f"http://{server['metadata']['name']}"
    served = {server["spec"]["model"]["servedName"], *(one["name"] for one in server["spec"]["aliases"])}
    parts = given.pop("PHASES", "").split(",")
    named = {part.partition("=")[2] for part in parts} if parts != [""] else {given["BASE"], given["SHIM"]}
    assert named <= served
    security = {**pod["securityContext"], **container["securityContext"]}
    assert security["runAsNonRoot"]
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert not security["allowPrivilegeEscalation"]


@pytest.mark.parametrize("folder", ["phase-adapters", "toolshim"])
def test_one_command_makes_the_program_the_rows_and_an_adapter_of_each(folder: str) -> None:
    place = EXAMPLES / folder
    (kustomization,) = documents(place / "kustomization.yaml")
    made = {one["name"]: {Path(name).name for name in one["files"]} for one in kustomization["configMapGenerator"]}
    objects = [one for name in kustomization["resources"] for one in documents(place / name)]
    assert all((place / name).is_file() for one in kustomization["configMapGenerator"] for name in one["files"])
    (server,) = (one for one in objects if one["kind"] == "ModelServer")
    (deployment,) = (one for one in objects if one["kind"] == "Deployment")
    (volume,) = deployment["spec"]["template"]["spec"]["volumes"]
    assert volume["configMap"]["name"] in made
    jobs = {one["metadata"]["name"]: one["spec"] for one in objects if one["kind"] == "LoRATrainingJob"}
    assert {one["trainingJobRef"]["name"] for one in server["spec"]["adapters"]} == set(jobs)
    for spec in jobs.values():
        assert spec["baseModel"]["modelServerRef"]["name"] == server["metadata"]["name"]
        (dataset,) = spec["datasets"]
        assert dataset["configMapRef"]["key"] in made[dataset["configMapRef"]["name"]]
