"""Words and numbers from which tasks are drawn: one pool for training, another for the benchmark.

The pools share no word and no number, so a task drawn from one can never be drawn from the other.
"""

from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Final


class Split(StrEnum):
    """Which side of the experiment a task belongs to."""

    TRAINING = "training"
    BENCHMARK = "benchmark"


@dataclass(frozen=True, kw_only=True)
class Pool:
    """What the parameters of one split are made of.

    `names` become file and folder names, `words` become text, `counts` are lengths of files in lines and
    `cuts` are how many lines of a file are asked for (always fewer than the smallest of `counts`).
    """

    names: tuple[str, ...]
    words: tuple[str, ...]
    counts: tuple[int, ...]
    cuts: tuple[int, ...]

    def name(self, rng: Random) -> str:
        """Draw a name for a folder, or for a file without an ending."""
        return rng.choice(self.names)

    def file(self, rng: Random, *endings: str) -> str:
        """Draw a file name with one of `endings`, each with its dot (`.txt`, `.log` or `.md` by default)."""
        stem = rng.choice(self.names)
        if rng.random() < 1 / 3:
            stem += f"_{rng.choice(self.counts)}"
        return stem + rng.choice(endings or (".txt", ".log", ".md"))

    def files(self, rng: Random, count: int) -> list[str]:
        """Draw `count` different file names."""
        names: dict[str, None] = {}
        while len(names) < count:
            names[self.file(rng)] = None
        return list(names)

    def text(self, rng: Random) -> str:
        """Draw a text of two or three words."""
        return " ".join(rng.sample(self.words, rng.choice((2, 3))))

    def lines(self, rng: Random) -> list[str]:
        """Draw the lines of a file, one word each, all different."""
        return rng.sample(self.words, rng.choice(self.counts))


_TRAINING_NAMES: Final = (
    "report notes draft config summary index budget diary agenda letter recipe invoice orders sales people "
    "visits backup archive photos music school travel garden kitchen office clients tasks ideas results "
    "input sample values records metrics status errors events users prices stock"
)
_TRAINING_WORDS: Final = (
    "hello world apple banana cherry orange lemon green yellow purple river mountain forest meadow summer "
    "winter monday friday morning evening coffee butter bread sugar paper pencil window table quick brown "
    "silent happy little golden simple broken travel engine signal market doctor painter singer teacher "
    "north south circle square number letter planet rocket"
)
_BENCHMARK_NAMES: Final = (
    "journal catalog memo plan survey contract receipt wallet harbor library museum theater bakery workshop "
    "weather traffic members tickets payments shipping output totals history chapter lessons"
)
_BENCHMARK_WORDS: Final = (
    "grape melon peach walnut copper silver marble velvet ocean desert island canyon autumn spring sunday "
    "tuesday midnight noon tea honey cheese pepper ribbon candle mirror ladder gentle clever brave quiet "
    "hidden frozen bridge tunnel pilot farmer sailor dancer west east"
)

POOLS: Final = {
    Split.TRAINING: Pool(
        names=tuple(_TRAINING_NAMES.split()),
        words=tuple(_TRAINING_WORDS.split()),
        counts=(7, 8, 10, 12),
        cuts=(1, 2, 4),
    ),
    Split.BENCHMARK: Pool(
        names=tuple(_BENCHMARK_NAMES.split()),
        words=tuple(_BENCHMARK_WORDS.split()),
        counts=(6, 9, 11),
        cuts=(3, 5),
    ),
}
