"""Search in collections of documents, by Okapi BM25 (https://doi.org/10.1561/1500000019), inside the process.

A collection is a file of JSON lines, `{"id": …, "title": …, "text": …}`. Its index is built once and kept in a folder
whose name is the digest of all that decides what is in it, so that another file, or another release of the library,
gets an index of its own.
"""

import hashlib
import json
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import bm25s
import numpy as np

from whetstone_agent.tooluse.errors import EnvironmentDataError

_WORD: Final = re.compile(r"\w+")
_FORMAT: Final = f"words-1 bm25s-{bm25s.__version__}"


@dataclass(frozen=True, kw_only=True)
class Document:
    """One document."""

    id: str
    title: str
    text: str


class Collection:
    """Documents with their index.

    Args:
        name: What agents call it.
        documents: At least one.
        index: Index over them, in their order.
    """

    def __init__(self, name: str, documents: Sequence[Document], index: bm25s.BM25) -> None:
        self.name = name
        self.documents = tuple(documents)
        self.ids = frozenset(one.id for one in documents)
        self._index = index

    @classmethod
    def open(cls, path: Path, cache: Path) -> "Collection":
        """Read a collection, and its index from the cache; an index that is not there is built.

        Args:
            path: File of JSON lines; its name without the suffix is the collection's.
            cache: Folder for indexes, which exists; processes may share it.

        Raises:
            EnvironmentDataError: The file cannot be used; all its bad lines are named.
        """
        try:
            content = path.read_bytes()
        except OSError as error:
            raise EnvironmentDataError([f"{path.name}: cannot be read: {error.strerror or error}"]) from error
        documents = _documents(content, path.name)
        digest = hashlib.sha256(f"{_FORMAT}\n".encode() + content).hexdigest()
        return cls(path.stem, documents, _index(documents, cache / digest[:32]))

    def search(self, query: str, top_k: int) -> list[Document]:
        """Return the documents that fit a query best, best first; those that share no word with it are left out.

        Args:
            query: Words in any form.
            top_k: Documents at most.
        """
        known = [word for word in words(query) if word in self._index.vocab_dict]
        if not known:
            return []
        scores = self._index.get_scores(known)
        wanted = min(top_k, len(self.documents))
        # Equal scores come in the order of the file, so that a search gives the same on every machine.
        best = np.lexsort((np.arange(len(scores)), -scores))[:wanted]
        return [self.documents[place] for place in best if scores[place] > 0]


def words(text: str) -> list[str]:
    """Return the words of a text as the index has them."""
    return _WORD.findall(text.lower())


def _index(documents: Sequence[Document], place: Path) -> bm25s.BM25:
    if place.is_dir():
        return bm25s.BM25.load(place, show_progress=False)
    index = bm25s.BM25(method="lucene")
    index.index([words(f"{one.title} {one.text}") for one in documents], show_progress=False)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".index-") as staging:
        index.save(Path(staging) / "index", show_progress=False)
        try:
            (Path(staging) / "index").rename(place)
        except OSError:
            # Another process was faster; both are the same.
            if not place.is_dir():
                raise
    return index


def _documents(content: bytes, file: str) -> list[Document]:
    found: dict[str, Document] = {}
    problems: list[str] = []
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            document = _document(json.loads(line))
        except (ValueError, UnicodeDecodeError) as error:
            problems.append(f"{file}: line {number}: {error}")
            continue
        if document.id in found:
            problems.append(f"{file}: line {number}: id: {document.id!r} is there twice: rename one")
        found[document.id] = document
    if not found and not problems:
        problems.append(f"{file}: holds no document: add one")
    if problems:
        raise EnvironmentDataError(problems)
    return list(found.values())


def _document(row: Any) -> Document:
    if not isinstance(row, dict):
        raise ValueError('must be an object: write {"id": …, "title": …, "text": …}')  # noqa: TRY004
    for field in ("id", "text"):
        if not isinstance(row.get(field), str) or not row[field].strip():
            raise ValueError(f"{field}: must be text that is not empty: add it")
    return Document(id=row["id"], title=str(row.get("title") or ""), text=row["text"])
