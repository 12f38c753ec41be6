"""Rows of data files: JSON lines or Parquet, one at a time, so that a file's size costs no memory."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PARQUET = ".parquet"
BATCH_ROWS = 64
"""Rows of a Parquet file that are decoded at once."""


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


def read_lines(path: Path) -> Iterator[Line]:
    """Yield the rows of a file; blank lines are passed over.

    Args:
        path: A file of JSON lines, or of Parquet where its name ends in `.parquet`.

    Raises:
        OSError: It cannot be opened.
        ModuleNotFoundError: Parquet needs pyarrow.
    """
    yield from (_parquet if path.suffix == PARQUET else _json)(path)


def _json(path: Path) -> Iterator[Line]:
    with path.open("rb") as stream:
        for number, text in enumerate(stream, start=1):
            if not text.strip():
                continue
            try:
                value = json.loads(text)
            except (ValueError, RecursionError) as error:
                problem = f"is not JSON ({error}); write one JSON object a line, in UTF-8, with no line break in it"
                yield Line(number=number, value={}, problem=problem)
                continue
            if isinstance(value, dict):
                yield Line(number=number, value=value)
            else:
                yield Line(number=number, value={}, problem='is not a JSON object; write {"messages": [...]}')


def _parquet(path: Path) -> Iterator[Line]:
    """Yield the rows of a Parquet file without the fields that are null in them."""
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=BATCH_ROWS):
                for value in batch.to_pylist():
                    number += 1
                    yield Line(number=number, value=_without_nulls(value))
    except (OSError, ValueError) as error:
        yield Line(number=number, value={}, problem=f"is not Parquet ({error}); write it again", ends=True)


def _without_nulls(value: Any) -> Any:
    """Return a value without null fields: a column holds every field that any row has."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
