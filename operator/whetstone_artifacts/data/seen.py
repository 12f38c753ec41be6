"""Which rows are there already: the same, or nearly the same. On disk, so that millions of rows cost no memory.

Nearly the same is measured by the words: the Jaccard index of the sets of all runs of three words, estimated with
MinHash (Broder, "On the resemblance and containment of documents", 1997). Candidates are found by bands of the
signature (Leskovec, Rajaraman, Ullman, "Mining of Massive Datasets", chapter 3): of two rows that are 0.9 alike, 1 in
8000 pairs is missed.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from numpy.typing import NDArray

PERMUTATIONS: Final = 128
BANDS: Final = 16
_WORDS: Final = 3
"""Words in a run."""
_TABLES: Final = """
    CREATE TABLE rows (id INTEGER PRIMARY KEY, file INTEGER, number INTEGER, signature BLOB);
    CREATE TABLE keys (kind INTEGER, key BLOB, id INTEGER, PRIMARY KEY (kind, key)) WITHOUT ROWID;
    CREATE TABLE bands (band INTEGER, key BLOB, id INTEGER, PRIMARY KEY (band, key, id)) WITHOUT ROWID;
"""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a row stands.

    Args:
        file: Number of the file.
        number: Row in it, from 1.
        alike: How alike the row is that was looked for, from 0 to 1.
    """

    file: int
    number: int
    alike: float = 1.0


class Seen:
    """Rows that were met, by keys and by likeness."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        database.executescript(_TABLES)

    def add(self, file: int, number: int) -> int:
        """Take a row and return its id."""
        row = self._database.execute("INSERT INTO rows (file, number) VALUES (?, ?)", (file, number)).lastrowid
        assert row is not None
        return row

    def find(self, kind: int, key: bytes) -> Place | None:
        """Return the first row that was marked with a key.

        Args:
            kind: Of the key; keys of different kinds never meet.
            key: The key.
        """
        found = self._database.execute(
            "SELECT file, number FROM keys JOIN rows USING (id) WHERE kind = ? AND key = ?", (kind, key)
        ).fetchone()
        return None if found is None else Place(file=found[0], number=found[1])

    def mark(self, kind: int, key: bytes, row: int) -> None:
        """Give a row a key, unless an earlier one has it."""
        self._database.execute("INSERT OR IGNORE INTO keys VALUES (?, ?, ?)", (kind, key, row))

    def find_alike(self, signature: "NDArray[Any]", least: float) -> list[Place]:
        """Return the rows that are at least so alike, the most alike first.

        Args:
            signature: Of the row that is looked for.
            least: From 0 to 1.
        """
        import numpy as np

        found: dict[int, Place] = {}
        for band, key in _bands(signature):
            for row, file, number, stored in self._database.execute(
                "SELECT id, file, number, signature FROM bands JOIN rows USING (id) WHERE band = ? AND key = ?",
                (band, key),
            ):
                alike = float(np.mean(np.frombuffer(stored, dtype=np.uint32) == signature))
                if alike >= least:
                    found[row] = Place(file=file, number=number, alike=alike)
        return sorted(found.values(), key=lambda place: -place.alike)

    def remember(self, signature: "NDArray[Any]", row: int) -> None:
        """Let a row be found by likeness."""
        self._database.execute("UPDATE rows SET signature = ? WHERE id = ?", (signature.tobytes(), row))
        self._database.executemany(
            "INSERT OR IGNORE INTO bands VALUES (?, ?, ?)", [(band, key, row) for band, key in _bands(signature)]
        )


@contextmanager
def seen_rows() -> Iterator[Seen]:
    """Give an empty store in a temporary file, which is gone afterwards."""
    # The empty name is SQLite's for a private database that goes to a temporary file once it is large.
    with closing(sqlite3.connect("")) as database:
        yield Seen(database)


def signature_of(text: str) -> "NDArray[Any]":
    """Return the MinHash signature of a text.

    Raises:
        ModuleNotFoundError: datasketch is not installed.
    """
    import numpy as np
    from datasketch import MinHash

    words = text.lower().split()
    runs = {" ".join(words[start : start + _WORDS]) for start in range(max(1, len(words) - _WORDS + 1))}
    made = MinHash(num_perm=PERMUTATIONS)
    made.update_batch([run.encode(errors="surrogatepass") for run in runs])
    return np.asarray(made.hashvalues, dtype=np.uint32)


def _bands(signature: "NDArray[Any]") -> list[tuple[int, bytes]]:
    width = PERMUTATIONS // BANDS
    return [(band, signature[band * width : (band + 1) * width].tobytes()) for band in range(BANDS)]
