"""The company that ships: its service answers what its instances say, and its halves share nothing."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
from unit.tooluse.conftest import COMPANY_KEY as KEY
from whetstone_agent.tooluse.api_client import ApiClient
from whetstone_agent.tooluse.api_tools import Mode
from whetstone_agent.tooluse.env import EnvironmentSettings, ToolUseEnv
from whetstone_agent.tooluse.instances import Instance
from whetstone_agent.tooluse.outcomes import StepCategory
from whetstone_agent.tooluse.toolbox import ToolSettings
from whetstone_agent.tooluse.world import World
from whetstone_artifacts.data.ladder import Rung
from whetstone_dev.company.__main__ import FOLDER
from whetstone_dev.company.__main__ import main as company
from whetstone_dev.company.records import Split
from whetstone_dev.places import CHECKOUT


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World.open(FOLDER, tmp_path_factory.mktemp("indexes"))


@pytest.fixture(scope="module")
def sets(world: World) -> dict[str, list[Instance]]:
    return {split: world.read(FOLDER / f"{split}.json") for split in Split}


@pytest.mark.parametrize("mode", Mode)
def test_ground_truth_solves_every_instance_against_the_real_service(
    world: World, sets: dict[str, list[Instance]], company_url: str, mode: Mode
) -> None:
    settings = EnvironmentSettings(tools=ToolSettings(mode=mode))
    instances = [*sets["train"], *sets["test"]]
    with ApiClient(company_url, headers={"Authorization": f"Bearer {KEY}"}) as api:
        env = ToolUseEnv(instances, world, api=api, settings=settings)
        for one in instances:
            env.reset(options={"instance": one.id})
            steps = [env.step(action.to_text()) for action in env.ground_truth()]
            assert steps[-1][-1]["success"], one.id
            for turn in one.turns:
                calls = len(turn.trajectory) if turn.answerable else 0
                own, steps = steps[: calls + 1], steps[calls + 1 :]
                categories = [info["category"] for *_, info in own]
                assert categories == [StepCategory.EXPECTED] * calls + [StepCategory.CORRECT], one.id
                assert not turn.answerable or _told(turn, own), one.id


_OF_BOTH = ("sheet-and-stock", "in-order")


def _told(one: Instance, steps: list[Any]) -> bool:
    """Say whether the last result holds the answer; that of a sum is nowhere, that of two questions in two results."""
    return not one.trajectory or one.id.startswith(_OF_BOTH) or one.answers[0] in steps[-2][0]


def test_every_instance_is_tagged_with_its_rung_and_every_rung_is_there(sets: dict[str, list[Instance]]) -> None:
    rungs = {one.id: one.tags for instances in sets.values() for one in instances}
    assert {len(tags) for tags in rungs.values()} == {1}
    for instances in sets.values():
        assert {rung for one in instances for rung in one.tags} == set(Rung)
    for name, rung in (
        ("site-cairn-hill-0", "single"),
        # What it takes is forbidden, so no call is the right one.
        ("site-cairn-hill-0-policy-1", "none"),
        ("lead-email-kaolin-0", "nested"),
        ("sheet-and-stock-redstart-0", "parallel"),
    ):
        assert rungs[name] == [rung]
    assert all(tags == ["multi-turn"] for name, tags in rungs.items() if name.startswith("talk-"))


def test_every_scenario_is_there_with_and_without_an_answer(sets: dict[str, list[Instance]]) -> None:
    for instances in sets.values():
        seen = Counter((one.tool_availability, one.answerable) for one in instances)
        policies = Counter(one.answerable for one in instances if one.tool_usage)
        orders = Counter(one.order for one in instances)
        assert len(seen) == 8
        assert len(policies) == 2
        assert len(orders) == 3
    assert 180 <= len(sets["train"]) + len(sets["test"]) <= 240


def test_the_halves_share_no_question_and_no_source(sets: dict[str, list[Instance]]) -> None:
    for part in ("question", "id"):
        train, test = ({getattr(one, part) for one in sets[split]} for split in ("train", "test"))
        assert not train & test
    documents = [{name for one in sets[split] for step in one.trajectory for name in step.documents} for split in Split]
    assert not documents[0] & documents[1]


def test_the_service_keeps_to_its_key_and_its_document(company_url: str) -> None:
    with httpx.Client(base_url=company_url) as client:
        assert client.get("/stock/FI-100").status_code == 401
        client.headers["Authorization"] = f"Bearer {KEY}"
        assert set(client.get("/stock/FI-100").json()) == {"code", "units", "price"}
        assert client.get("/stock/FI-1").status_code == 404
        assert client.get("/nothing").status_code == 404
        assert client.get("/employees", params={"age": "4"}).status_code == 422
        team = client.get("/employees", params={"team": "Optics", "site": "Birchmoor"}).json()
        assert team["count"] == len(team["ids"])


def test_the_files_are_what_the_generator_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert company(["--check", "--root", str(CHECKOUT)]) == 0
    rows = json.loads((FOLDER / "train.json").read_text())
    rows[0]["answers"] = ["other"]
    assert company(["--write", "--root", str(tmp_path)]) == 0
    changed = tmp_path / FOLDER.relative_to(CHECKOUT) / "train.json"
    changed.write_text(json.dumps(rows))
    assert company(["--check", "--root", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"{changed} is not current; run `make generate`\n"
