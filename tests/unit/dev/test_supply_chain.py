"""What goes into the images is pinned, and told."""

import json
import re
from pathlib import Path

import pytest
from whetstone_dev.places import CHECKOUT
from whetstone_dev.sbom import IMAGES, components, write_all

OUR_WHEEL = "uv pip install --no-deps /tmp/wheel/*.whl"


@pytest.mark.parametrize("file", sorted(CHECKOUT.glob("images/*/requirements.txt")), ids=lambda file: file.parent.name)
def test_every_requirement_is_pinned_with_its_hashes(file: Path) -> None:
    lines = file.read_text().replace("\\\n", " ").splitlines()
    pinned = [line for line in lines if line.strip()]

    assert [line for line in pinned if not re.match(r"[\w.-]+==\S+", line)] == []
    assert [line for line in pinned if "--hash=sha256:" not in line] == []


@pytest.mark.parametrize("file", sorted(CHECKOUT.glob("images/*/Containerfile")), ids=lambda file: file.parent.name)
def test_an_image_installs_nothing_but_our_wheel_without_a_hash(file: Path) -> None:
    instructions = file.read_text().replace("\\\n", " ").splitlines()
    installs = [part.strip() for line in instructions for part in line.removeprefix("RUN").split("&&")]
    installs = [part for part in installs if "pip install" in part and part != OUR_WHEEL]

    assert [part for part in installs if not re.search(r"--require-hashes --requirements? /tmp/\w+\.txt$", part)] == []


def test_ci_asks_for_known_holes() -> None:
    assert re.search(r"^ +timeout \d+ make audit ", (CHECKOUT / ".ci" / "run").read_text(), re.MULTILINE)
    assert (CHECKOUT / ".ci" / "run").read_text().endswith('step "audit" audit\n')


def test_bill_of_materials_names_every_package_of_every_image(tmp_path: Path) -> None:
    write_all(tmp_path)

    assert {path.stem.removesuffix(".cdx") for path in tmp_path.iterdir()} == set(IMAGES)
    for image in IMAGES:
        bill = json.loads((tmp_path / f"{image}.cdx.json").read_text())
        purls = {one["purl"] for one in bill["components"]}
        assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
        assert purls == {f"pkg:pypi/{one.name}@{one.version}" for one in components(image)}
    trainer = {one.name for one in components("trainer")}
    assert {"torch", "trl", "peft"} <= trainer


def test_hashes_of_a_package_are_in_the_bill(tmp_path: Path) -> None:
    write_all(tmp_path)
    bill = json.loads((tmp_path / "operator.cdx.json").read_text())
    kopf = next(one for one in bill["components"] if one["name"] == "kopf")

    text = (CHECKOUT / "images" / "operator" / "requirements.txt").read_text()
    assert kopf["hashes"]
    assert all(f"sha256:{one['content']}" in text for one in kopf["hashes"])
