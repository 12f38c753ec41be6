"""Searches find what fits best, from an index that is built once for each content."""

import json
from pathlib import Path

import bm25s
import pytest
from whetstone_agent.tooluse.errors import EnvironmentDataError
from whetstone_agent.tooluse.retrieval import Collection


def write(folder: Path, texts: dict[str, str]) -> Path:
    path = folder / "handbook.jsonl"
    path.write_text("".join(json.dumps({"id": name, "text": text}) + "\n" for name, text in texts.items()))
    return path


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    folder = tmp_path / "cache"
    folder.mkdir()
    return folder


def test_the_best_come_first_and_others_not_at_all(tmp_path: Path, cache: Path) -> None:
    texts = {"a": "trains and ships", "b": "trains, trains, trains", "c": "badges"}
    found = Collection.open(write(tmp_path, texts), cache).search("Trains?", 3)
    assert [one.id for one in found] == ["b", "a"]


def test_top_k_bounds_what_comes(tmp_path: Path, cache: Path) -> None:
    collection = Collection.open(write(tmp_path, {str(n): "same words" for n in range(5)}), cache)
    assert [one.id for one in collection.search("words", 2)] == ["0", "1"]
    assert len(collection.search("words", 50)) == 5


@pytest.mark.parametrize("query", ["", "?!", "unheard"])
def test_a_query_without_known_words_finds_nothing(tmp_path: Path, cache: Path, query: str) -> None:
    assert Collection.open(write(tmp_path, {"a": "trains"}), cache).search(query, 3) == []


def test_the_index_is_built_once_and_anew_for_other_documents(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, {"a": "trains", "b": "ships"})
    before = Collection.open(path, cache).search("ships", 1)
    built: list[int] = []
    real = bm25s.BM25.index
    monkeypatch.setattr(bm25s.BM25, "index", lambda self, *a, **k: (built.append(1), real(self, *a, **k))[1])
    assert Collection.open(path, cache).search("ships", 1) == before
    assert built == []
    changed = Collection.open(write(tmp_path, {"a": "trains", "c": "boats"}), cache)
    assert [one.id for one in changed.search("boats", 1)] == ["c"]
    assert built == [1]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "handbook.jsonl: line 2: "),
        ("[]", "handbook.jsonl: line 2: must be an object"),
        ('{"id": "b"}', "handbook.jsonl: line 2: text: must be text"),
        ('{"text": "b"}', "handbook.jsonl: line 2: id: must be text"),
        ('{"id": "a", "text": "b"}', "handbook.jsonl: line 2: id: 'a' is there twice"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, cache: Path, line: str, said: str) -> None:
    path = write(tmp_path, {"a": "trains"})
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(EnvironmentDataError) as caught:
        Collection.open(path, cache)
    assert said in str(caught.value)


def test_a_collection_without_documents_is_refused(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(EnvironmentDataError, match="holds no document"):
        Collection.open(write(tmp_path, {}), cache)
