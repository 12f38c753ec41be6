"""Rows of data files: JSON lines or Parquet, a few at a time, so that a file's size costs no memory."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PARQUET = ".parquet"
CHUNK_ROWS = 64
CHUNK_BYTES = 1 << 20
"""A chunk ends with the row that reaches one of both; of a Parquet file, the first counts alone."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A row as it stands in a file.

    Args:
        number: Line in the file, or row of a Parquet file, from 1.
        value: The object; empty where there is none.
        problem: Why there is none, with the fix; empty as a rule.
        ends: Nothing after it can be read, and `number` is that of the last row before it.
    """

    number: int
    value: dict[str, Any]
    problem: str = ""
    ends: bool = False


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Rows of a file that follow each other, not decoded yet: another process may do that.

    Args:
        first: Number of the first.
        rows: Lines of JSON, blank ones among them; or a record batch of a Parquet file; None where there is a problem.
        problem: Why nothing from here on can be read; empty as a rule.
    """

    first: int
    rows: Any
    problem: str = ""

    def alone(self, number: int) -> "Chunk":
        """Return the chunk of one row of this one."""
        place = number - self.first
        return Chunk(first=number, rows=self.rows[place : place + 1])


def read_lines(path: Path) -> Iterator[Line]:
    """Yield the rows of a file; blank lines are passed over.

    Args:
        path: As of `read_chunks`.

    Raises:
        OSError, ModuleNotFoundError: As of `read_chunks`.
    """
    for chunk in read_chunks(path):
        yield from lines_of(chunk)


def read_chunks(path: Path) -> Iterator[Chunk]:
    """Yield the rows of a file in chunks, each with at least one row, or with the problem that ends the file.

    Args:
        path: A file of JSON lines, or of Parquet where its name ends in `.parquet`.

    Raises:
        OSError: It cannot be opened.
        ModuleNotFoundError: Parquet needs pyarrow.
    """
    yield from (_parquet if path.suffix == PARQUET else _json)(path)


def lines_of(chunk: Chunk) -> Iterator[Line]:
    """Yield the rows of a chunk; blank lines are passed over."""
    if chunk.problem:
        yield Line(number=chunk.first - 1, value={}, problem=chunk.problem, ends=True)
    elif isinstance(chunk.rows, list):
        for number, text in enumerate(chunk.rows, start=chunk.first):
            if text.strip():
                yield _decoded(number, text)
    else:
        for number, value in enumerate(chunk.rows.to_pylist(), start=chunk.first):
            yield Line(number=number, value=_without_nulls(value))


def _decoded(number: int, text: bytes) -> Line:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        problem = f"is not JSON ({error}); write one JSON object a line, in UTF-8, with no line break in it"
        return Line(number=number, value={}, problem=problem)
    if isinstance(value, dict):
        return Line(number=number, value=value)
    return Line(number=number, value={}, problem='is not a JSON object; write {"messages": [...]}')


def _json(path: Path) -> Iterator[Chunk]:
    lines: list[bytes] = []
    first, size = 1, 0
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            size += len(line)
            lines.append(line)
            if len(lines) == CHUNK_ROWS or size >= CHUNK_BYTES:
                if any(map(bytes.strip, lines)):
                    yield Chunk(first=first, rows=lines)
                lines, first, size = [], number + 1, 0
    if any(map(bytes.strip, lines)):
        yield Chunk(first=first, rows=lines)


def _parquet(path: Path) -> Iterator[Chunk]:
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=CHUNK_ROWS):
                yield Chunk(first=number + 1, rows=batch)
                number += batch.num_rows
    except (OSError, ValueError) as error:
        yield Chunk(first=number + 1, rows=None, problem=f"is not Parquet ({error}); write it again")


def _without_nulls(value: Any) -> Any:
    """Return a value without null fields: a column holds every field that any row has."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
