"""The page of troubleshooting: an entry for each reason, and none without one."""

import re
from pathlib import Path

import pytest
from whetstone_api import vocabulary
from whetstone_api.conditions_page import members_of
from whetstone_api.remedies import REMEDIES, benchmarkrun, every_kind, loratrainingjob, modelserver
from whetstone_api.remedies.remedy import EVENT, KIND, NAME, NAMESPACE
from whetstone_api.troubleshooting_page import main, page
from whetstone_api.vocabulary import ConditionType, Reason

CHECKOUT = Path(__file__).parents[3]
MODULES = {
    "All kinds": every_kind,
    "ModelServer": modelserver,
    "LoRATrainingJob": loratrainingjob,
    "BenchmarkRun": benchmarkrun,
}


def test_page_is_current() -> None:
    assert main(["--check", "--root", str(CHECKOUT)]) == 0


def test_a_page_that_is_not_current_is_refused(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "troubleshooting.md").write_text("old")
    assert main(["--check", "--root", str(tmp_path)]) == 1
    assert main(["--write", "--root", str(tmp_path)]) == 0
    assert main(["--check", "--root", str(tmp_path)]) == 0


def test_every_reason_has_its_entry_and_no_entry_lacks_a_reason() -> None:
    headings = re.findall(r"^### (\w+)$", page(), re.MULTILINE)
    assert headings == [reason.value for reason in Reason]


def test_remedies_are_grouped_as_the_vocabulary_is() -> None:
    members = members_of(Reason, source=Path(vocabulary.__file__).read_text())
    for group, module in MODULES.items():
        assert set(module.REMEDIES) == {Reason(one.value) for one in members if one.group == group}
    assert sum(len(module.REMEDIES) for module in MODULES.values()) == len(REMEDIES)


@pytest.mark.parametrize("reason", Reason)
def test_a_remedy_says_where_it_is_seen_how_to_look_and_what_to_do(reason: Reason) -> None:
    remedy = REMEDIES[reason]
    assert set(remedy.on) <= {*ConditionType, EVENT}
    # Only a command on the user's machine tells of images that it could not build.
    assert remedy.on or reason is Reason.IMAGE_NOT_BUILT
    assert remedy.look
    assert all(command.split()[0] in ("kubectl", "whetstone") for command in remedy.look)
    placeholders = {word for command in remedy.look for word in re.findall(r"\b[A-Z]{4,}\b", command)}
    assert placeholders <= {NAMESPACE, NAME, KIND}
    assert len(remedy.do.split()) > 1
    assert remedy.do.endswith(".")


def test_links_of_the_page_lead_somewhere() -> None:
    anchors = {line.lstrip("# ").lower().replace(" ", "-") for line in page().splitlines() if line.startswith("#")}
    for target in re.findall(r"\]\(([^)]+)\)", page()):
        file, _, anchor = target.partition("#")
        assert (CHECKOUT / "docs" / file).exists() if file else anchor in anchors, target
