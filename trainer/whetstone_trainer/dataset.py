"""Reading of chat data in JSON lines or Parquet. Every refusal names the spec's field, the row (from 1) and the fix."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whetstone_api.jobs import DatasetFile
from whetstone_api.training_preference import PreferenceSpec
from whetstone_api.vocabulary import CLAIMS_ROOT, CONFIGMAPS_ROOT, Reason
from whetstone_artifacts.data.formats import FormatError, Message, to_messages, to_tools
from whetstone_artifacts.data.lines import Chunk, lines_of, read_chunks
from whetstone_artifacts.data.pairs import Pair, to_pair

from whetstone_trainer.errors import UserError


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
    for chunk in dataset_chunks(dataset):
        yield from rows_of(dataset, chunk, preference)


def dataset_chunks(dataset: DatasetFile) -> Iterator[Chunk]:
    """Yield a dataset in chunks, which `rows_of` decodes, here or in another process.

    Raises:
        UserError: `DATASET_NOT_FOUND` or `DATASET_EMPTY`.
    """
    path = _existing(dataset)
    empty = True
    for chunk in read_chunks(path):
        empty = False
        yield chunk
    if empty:
        raise UserError(
            Reason.DATASET_EMPTY,
            f'{dataset.field}: the file has no rows; write one {{"messages": [...]}} object a line',
        )


def rows_of(dataset: DatasetFile, chunk: Chunk, preference: PreferenceSpec | None) -> Iterator[Row]:
    """Yield the rows of a chunk.

    Args:
        dataset: The chunk's.
        chunk: The rows.
        preference: As of `read_rows`.

    Raises:
        UserError: `DATASET_INVALID`.
    """
    for number, value in _values(dataset, chunk):
        yield _row(dataset, number, value=value, preference=preference)


def row_of(dataset: DatasetFile, chunk: Chunk, *, number: int, preference: PreferenceSpec | None) -> Row:
    """Return one row of a chunk by its number, decoded again."""
    return next(rows_of(dataset, chunk.alone(number), preference))


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
    volume = _volume_of(path)
    if volume is not None and not path.resolve().is_relative_to(volume.resolve()):
        # Whoever writes to the claim must not choose what else of this pod is read: its Secrets, other claims.
        problem = "is a link that leads out of its volume; put the file itself there"
        raise UserError(Reason.DATASET_INVALID, f"{dataset.field}: {problem}")
    return path


def _volume_of(path: Path) -> Path | None:
    """Return where the claim or ConfigMap of a file is mounted; None for a file of the pod's own."""
    for root in (Path(CLAIMS_ROOT), Path(CONFIGMAPS_ROOT)):
        if path.is_relative_to(root):
            return root / path.relative_to(root).parts[0]
    return None


def _values(dataset: DatasetFile, chunk: Chunk) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a chunk with their numbers."""
    for line in lines_of(chunk):
        if line.ends:
            problem = f"after row {line.number}, {line.problem}"
            raise UserError(Reason.DATASET_INVALID, f"{dataset.field}: {problem}")
        if line.problem:
            raise invalid_row(dataset, line.number, line.problem)
        yield line.number, line.value


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
