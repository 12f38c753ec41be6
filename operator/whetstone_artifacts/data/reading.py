"""Reading of files whose rows are all to be good: the first that is not ends it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whetstone_api.vocabulary import Reason

from whetstone_artifacts.data.example import Example, read_example
from whetstone_artifacts.data.formats import FormatError
from whetstone_artifacts.data.lines import read_lines
from whetstone_artifacts.errors import ArtifactError


@dataclass(frozen=True, kw_only=True)
class Read:
    """A good row.

    Args:
        file: The file, as it was named.
        number: Line in it, from 1.
        value: The row as it stands.
        example: The row as it was read.
    """

    file: str
    number: int
    value: dict[str, Any]
    example: Example


def read_all(paths: Sequence[Path]) -> Iterator[Read]:
    """Yield the rows of files, one at a time.

    Raises:
        ArtifactError: A row is wrong; the message names it and the fix.
        OSError: A file cannot be read.
    """
    for path in paths:
        for line in read_lines(path):
            try:
                example = read_example(line.value) if not line.problem else None
            except FormatError as error:
                raise _wrong(path, line.number, str(error)) from error
            if example is None:
                raise _wrong(path, line.number + line.ends, line.problem)
            yield Read(file=str(path), number=line.number, value=line.value, example=example)


def _wrong(path: Path, number: int, problem: str) -> ArtifactError:
    return ArtifactError(Reason.DATASET_INVALID, f"{path}, row {number}: {problem}")
