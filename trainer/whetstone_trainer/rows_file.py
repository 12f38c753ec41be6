"""The files of masked rows: Arrow IPC streams with the columns `input_ids` and `labels` (lists of int32).

Pairs have `rejected_ids` and `rejected_labels` beside them.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from whetstone_trainer.render import Rendered

COLUMNS = ("input_ids", "labels")
PAIR_COLUMNS = (*COLUMNS, "rejected_ids", "rejected_labels")
"""The first two are the chosen side, so that the probe reads pairs as any rows."""
CHUNK_ROWS = 512
"""Rows held in memory before they are written."""


class RowWriter:
    """Writes rows in chunks to an Arrow stream."""

    def __init__(self, stream: Any, schema: Any) -> None:
        self._stream = stream
        self._schema = schema
        self._pending: list[Rendered] = []

    def add(self, rendered: Rendered) -> None:
        """Take a row; it is in the file once the writer's context has ended."""
        self._pending.append(rendered)
        if len(self._pending) >= CHUNK_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write what is pending."""
        import pyarrow as pa

        if not self._pending:
            return
        arrays = [_lists([getattr(row, name) for row in self._pending]) for name in self._schema.names]
        self._stream.write_batch(pa.record_batch(arrays, schema=self._schema))
        self._pending = []


def _lists(rows: Sequence[Sequence[int]]) -> Any:
    """Return lists of numbers as an Arrow array, without making a Python number of each again."""
    import pyarrow as pa

    values = np.concatenate([np.asarray(row, dtype=np.int32) for row in rows])
    ends = np.cumsum([0, *map(len, rows)], dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(values))


@contextmanager
def row_writer(path: Path, columns: Sequence[str] = COLUMNS) -> Iterator[RowWriter]:
    """Make a file of rows.

    Args:
        path: Where; what is there is replaced.
        columns: Names of the columns, each an attribute of the rows.
    """
    import pyarrow as pa

    schema = pa.schema([(name, pa.list_(pa.int32())) for name in columns])
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as stream:
        writer = RowWriter(stream, schema)
        yield writer
        writer.flush()
