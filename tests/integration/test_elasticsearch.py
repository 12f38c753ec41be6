"""The gym's searches in a real Elasticsearch, over the documents and instances of the company that ships."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from support.company import FOLDER
from support.search_node import search_node
from whetstone_agent.tooluse.elasticsearch import Elasticsearch
from whetstone_agent.tooluse.env import ToolUseEnv
from whetstone_agent.tooluse.errors import ApiNotJsonError, ApiUnavailableError, NoIndexError
from whetstone_agent.tooluse.outcomes import End, StepCategory
from whetstone_agent.tooluse.world import World

pytestmark = [pytest.mark.integration, pytest.mark.long]
COMPANY = FOLDER / "company"
PREFIX = "company-"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World.open(COMPANY, tmp_path_factory.mktemp("indexes"))


@pytest.fixture(scope="module")
def url(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node with an index for each collection, made as the page says."""
    with search_node(tmp_path_factory.mktemp("node")) as found:
        for name, collection in world.collections.items():
            fill(
                found,
                f"{PREFIX}{name}",
                {one.id: {"title": one.title, "text": one.text} for one in collection.documents},
            )
        yield found


def fill(url: str, index: str, documents: dict[str, dict[str, str]]) -> None:
    pairs = [json.dumps(part) for name, one in documents.items() for part in ({"index": {"_id": name}}, one)]
    answer = httpx.post(
        f"{url}/{index}/_bulk?refresh=true",
        content="\n".join(pairs) + "\n",
        headers={"Content-Type": "application/x-ndjson"},
        timeout=60,
    )
    assert not answer.raise_for_status().json()["errors"]


@pytest.fixture
def search(url: str) -> Iterator[Elasticsearch]:
    with Elasticsearch(url, index_prefix=PREFIX, pauses_seconds=()) as found:
        yield found


def test_each_search_of_the_ground_truth_finds_its_document(world: World, search: Elasticsearch) -> None:
    search.check(world.collections)
    instances = [one for split in ("train", "test") for one in world.read(COMPANY / f"{split}.json")]
    steps = [step for one in instances for turn in one.turns for step in turn.trajectory if step.searches]
    missed = [
        step.args
        for step in steps
        if not {one.id for one in search.search(step.source, str(step.args["query"]), 3)} & set(step.documents)
    ]
    assert len(steps) > 100
    assert missed == []


def test_an_episode_searches_there_and_is_void_without_its_index(world: World, url: str) -> None:
    one = next(one for one in world.read(COMPANY / "test.json") if one.id.startswith("site-"))
    for prefix, category, end in (
        (PREFIX, StepCategory.EXPECTED, None),
        ("other-", StepCategory.API_FAILED, End.API_UNAVAILABLE),
    ):
        with Elasticsearch(url, index_prefix=prefix, pauses_seconds=()) as search:
            env = ToolUseEnv([one], world, retriever=search)
            env.reset(options={"instance": one.id})
            *_, info = env.step(env.ground_truth()[0].to_text())
        assert (info["category"], info.get("end")) == (category, end)


def test_what_it_refuses_is_told(search: Elasticsearch) -> None:
    with pytest.raises(NoIndexError, match="has no index company-nothing"):
        search.check(["nothing"])
    # More than index.max_result_window.
    with pytest.raises(ApiNotJsonError, match="answers 400"):
        search.search("handbook", "leave", 10_001)
    assert search.search("handbook", "zzz", 3) == []
    assert search.search("handbook", '"(leave AND', 3)


def test_a_node_that_is_gone_is_told(tmp_path: Path) -> None:
    with search_node(tmp_path) as url:
        fill(url, "handbook", {"leave": {"title": "Leave", "text": "30 days"}})
        with Elasticsearch(url) as search:
            assert [one.id for one in search.search("handbook", "days", 3)] == ["leave"]
    with Elasticsearch(url, pauses_seconds=()) as search, pytest.raises(ApiUnavailableError, match="does not answer"):
        search.check(["handbook"])
