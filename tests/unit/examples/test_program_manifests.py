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
