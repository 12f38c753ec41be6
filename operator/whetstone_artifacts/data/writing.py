"""Files of rows that appear whole or not at all, and never in the place of another."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from whetstone_api.vocabulary import Reason

from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.replacing import replacing

Write = Callable[[Mapping[str, Any]], None]
"""Takes one row."""


@contextmanager
def row_files(paths: Sequence[Path]) -> Iterator[list[Write]]:
    """Give what writes rows to files of JSON lines; they appear at the end of the block, unless it fails.

    Args:
        paths: Files that do not exist; their folders are made.

    Raises:
        ArtifactError: One exists.
        OSError: One cannot be written.
    """
    there = next((path for path in paths if path.exists()), None)
    if there is not None:
        raise ArtifactError(Reason.OUTPUT_OCCUPIED, f"{there} exists; name another, or remove it")
    with ExitStack() as stack:
        writers = []
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = stack.enter_context(replacing(path))
            stream = stack.enter_context(temporary.open("w", encoding="utf-8", errors="surrogatepass"))
            writers.append(_writer(stream.write))
        yield writers


def _writer(write: Callable[[str], Any]) -> Write:
    def take(row: Mapping[str, Any]) -> None:
        write(json.dumps(row, ensure_ascii=False) + "\n")

    return take
