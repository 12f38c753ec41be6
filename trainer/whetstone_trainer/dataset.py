"""Reading of chat data in JSON lines or Parquet. Every refusal names the spec's field, the row (from 1) and the fix."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whetstone_api.jobs import DatasetFile
from whetstone_api.training_preference import PreferenceSpec
from whetstone_api.vocabulary import Reason

from whetstone_trainer.errors import UserError
from whetstone_trainer.formats import FormatError, Message, to_messages, to_tools
from whetstone_trainer.preference_rows import Pair, to_pair

PARQUET = ".parquet"
BATCH_ROWS = 64
"""Rows of a Parquet file that are decoded at once."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One conversation.

    Args:
        number: Line in the file, from 1.
        messages: The messages in order, as chat templates take them; of a pair, prompt and chosen answer.
        tools: Functions that the row offers the model.
        task: Digest of the task that the row came from, where the row says so.
        pair: The pair that the row is, in preference training.
        reward: How well it went, where the row says so.
    """

    number: int
    messages: list[Message]
    tools: list[dict[str, Any]] | None = None
    task: str | None
    pair: Pair | None = None
    reward: float | None = None

    @property
    def turns(self) -> int:
        """How often the assistant speaks."""
        return sum(message["role"] == "assistant" for message in self.messages)


def file_digest(dataset: DatasetFile) -> str:
    """Return `sha256:…` of a dataset's file.

    Raises:
        UserError: `DATASET_NOT_FOUND`, or `DIGEST_MISMATCH` where the spec names another.
    """
    path = _existing(dataset)
    with path.open("rb") as stream:
        digest = "sha256:" + hashlib.file_digest(stream, "sha256").hexdigest()
    if dataset.digest is not None and dataset.digest != digest:
        raise UserError(
            Reason.DIGEST_MISMATCH,
            f"{dataset.field}: the file has {digest}, and digest says {dataset.digest}; restore the file, or name the"
            " digest that is there in a new object",
        )
    return digest


def read_rows(dataset: DatasetFile, preference: PreferenceSpec | None = None) -> Iterator[Row]:
    """Yield the conversations of a dataset, one at a time. Blank lines are passed over.

    Args:
        dataset: The file.
        preference: How pairs are compared; None where the rows are conversations.

    Raises:
        UserError: `DATASET_NOT_FOUND`, `DATASET_EMPTY` or `DATASET_INVALID`.
    """
    path = _existing(dataset)
    empty = True
    for number, value in (_parquet_values if path.suffix == PARQUET else _json_values)(dataset, path):
        empty = False
        yield _row(dataset, number, value=value, preference=preference)
    if empty:
        raise UserError(
            Reason.DATASET_EMPTY,
            f'{dataset.field}: the file has no rows; write one {{"messages": [...]}} object a line',
        )


def invalid_row(dataset: DatasetFile, number: int, problem: str) -> UserError:
    """Return the refusal of one row: field, row, and the problem with its fix."""
    return UserError(Reason.DATASET_INVALID, f"{dataset.field}, row {number}: {problem}")


def _existing(dataset: DatasetFile) -> Path:
    path = Path(dataset.path)
    if path.is_dir():
        raise UserError(
            Reason.DATASET_NOT_FOUND, f"{dataset.field}: is a folder; name the .jsonl file in it, as in …/train.jsonl"
        )
    if not path.is_file():
        raise UserError(
            Reason.DATASET_NOT_FOUND, f"{dataset.field}: the file does not exist; correct the path or put it there"
        )
    return path


def _json_values(dataset: DatasetFile, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a file of JSON lines, with their line numbers."""
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                problem = f"is not JSON ({error}); write one JSON object a line, in UTF-8, with no line break in it"
                raise invalid_row(dataset, number, problem) from error
            if not isinstance(value, dict):
                raise invalid_row(dataset, number, 'is not a JSON object; write {"messages": [...]}')
            yield number, value


def _parquet_values(dataset: DatasetFile, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a Parquet file, numbered from 1, without the fields that are null in them."""
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=BATCH_ROWS):
                for value in batch.to_pylist():
                    number += 1
                    yield number, _without_nulls(value)
    except (OSError, ValueError) as error:
        problem = f"after row {number}, is not Parquet ({error}); write it again"
        raise UserError(Reason.DATASET_INVALID, f"{dataset.field}: {problem}") from error


def _without_nulls(value: Any) -> Any:
    """Return a value without null fields: a column holds every field that any row has."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _row(dataset: DatasetFile, number: int, *, value: dict[str, Any], preference: PreferenceSpec | None) -> Row:
    try:
        pair = to_pair(value, preference.granularity) if preference else None
        messages, tools = [*pair.prompt, *pair.chosen] if pair else to_messages(value), to_tools(value)
    except FormatError as error:
        raise invalid_row(dataset, number, str(error)) from error
    task = value.get("task")
    return Row(
        number=number,
        messages=messages,
        tools=tools,
        task=task if isinstance(task, str) else None,
        pair=pair,
        reward=_reward(value),
    )


def _reward(value: Mapping[str, Any]) -> float | None:
    for name in ("reward", "success"):
        if isinstance(found := value.get(name), bool | int | float):
            return float(found)
    return None
