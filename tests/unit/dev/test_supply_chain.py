"""What goes into the images is pinned, and told."""

import json
import re
from pathlib import Path

import pytest
from whetstone_dev.places import CHECKOUT
from whetstone_dev.sbom import IMAGES, components, write_all

WITHOUT_HASHES = {
    "torch": "its layer is shared with the engine of the local cluster",
    "engine-cpu": "an engine for the local cluster alone; clusters of users run vLLM's own image",
}


@pytest.mark.parametrize("file", sorted(CHECKOUT.glob("images/*/requirements.txt")), ids=lambda file: file.parent.name)
def test_every_requirement_is_pinned_with_its_hashes(file: Path) -> None:
    lines = file.read_text().replace("\\\n", " ").splitlines()
    pinned = [line for line in lines if line.strip()]

    assert [line for line in pinned if not re.match(r"[\w.-]+==\S+", line)] == []
    if file.parent.name not in WITHOUT_HASHES:
        assert [line for line in pinned if "--hash=sha256:" not in line] == []
        containerfile = (file.parent / "Containerfile").read_text()
        assert "--require-hashes --requirements /tmp/requirements.txt" in containerfile


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
