"""`make sbom` and `make audit`: what Python packages are in the images, and whether any has a known hole.

The bills are CycloneDX 1.5 (https://cyclonedx.org/docs/1.5/json/), made from the requirements that the images install,
which pin every package. The packages of Debian are those of the base image that is built upon.
"""

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whetstone_dev.commands import DevError, run
from whetstone_dev.places import BUILD, CHECKOUT

IMAGES = ("operator", "server", "trainer", "trainer-unsloth", "benchmark", "engine-cpu")
FOLDER = BUILD / "sbom"
AUDITOR = "pip-audit==2.10.1"
_ON_TORCH = frozenset({"trainer", "trainer-unsloth", "engine-cpu"})
"""Images whose first layer is images/torch."""
_PINNED = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>[^\s;]+)")


@dataclass(frozen=True, kw_only=True)
class Component:
    """A package of an image.

    Args:
        name: Its name, normalized.
        version: Its version.
        hashes: SHA-256 of each file that may be installed, hexadecimal.
    """

    name: str
    version: str
    hashes: tuple[str, ...]


def requirements(image: str) -> list[Path]:
    """Return the files that an image installs from."""
    folders = ("uv", "torch", image) if image in _ON_TORCH else ("uv", image)
    return [CHECKOUT / "images" / folder / "requirements.txt" for folder in folders]


def components(image: str) -> list[Component]:
    """Return the packages of an image, by name.

    Raises:
        DevError: One is not pinned.
    """
    found = {}
    for path in requirements(image):
        for line in path.read_text().replace("\\\n", " ").splitlines():
            if not line.strip() or line.startswith("#"):
                continue
            pinned = _PINNED.match(line)
            if pinned is None:
                raise DevError(f"{path.relative_to(CHECKOUT)}: {line.split()[0]} is not pinned; give its version")
            name = re.sub(r"[-_.]+", "-", pinned["name"]).lower()
            hashes = tuple(re.findall(r"--hash=sha256:(\w+)", line))
            found[name] = Component(name=name, version=pinned["version"], hashes=hashes)
    return [found[name] for name in sorted(found)]


def bill(image: str) -> dict[str, Any]:
    """Return the bill of materials of an image."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "container", "name": f"whetstone/{image}"}},
        "components": [
            {
                "type": "library",
                "name": one.name,
                "version": one.version,
                "purl": f"pkg:pypi/{one.name}@{one.version}",
                "hashes": [{"alg": "SHA-256", "content": digest} for digest in one.hashes],
            }
            for one in components(image)
        ],
    }


def write_all(folder: Path = FOLDER) -> None:
    """Write the bill of every image into a folder, as `<image>.cdx.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    for image in IMAGES:
        (folder / f"{image}.cdx.json").write_text(json.dumps(bill(image), indent=2) + "\n")


def audit() -> None:
    """Ask PyPI about every package of every image.

    Raises:
        DevError: One has a known hole, or PyPI does not answer; the message holds the auditor's words.
    """
    uv = Path(sys.executable).parent / "uv"
    for image in IMAGES:
        pinned = BUILD / "audit" / f"{image}.txt"
        pinned.parent.mkdir(parents=True, exist_ok=True)
        pinned.write_text("".join(f"{one.name}=={one.version}\n" for one in components(image)))
        # Without dependencies: every one of them is in the list.
        asked = ["--no-deps", "--disable-pip", "--progress-spinner", "off", "--requirement", str(pinned)]
        run([uv, "tool", "run", "--quiet", AUDITOR, *asked], timeout=600)
        print(f"{image}: {len(components(image))} packages without a known hole")
