"""`whetstone data sample`: a page with some rows, for people to review."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from whetstone_cli.data.running import add_files, guarded
from whetstone_cli.exits import EXIT_INVALID

if TYPE_CHECKING:
    from whetstone_artifacts.data.review import Sampled


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    one = commands.add_parser("sample", help="write a page with rows that were drawn, for people to review")
    add_files(one)
    one.add_argument("-n", dest="count", type=int, default=50, metavar="ROWS", help="rows to draw; default 50")
    one.add_argument("--seed", type=int, default=0, help="another seed draws other rows; default 0")
    one.add_argument("-o", dest="output", type=Path, default=Path("review.html"), help="default: review.html")
    one.set_defaults(command_function=guarded(sample))


def sample(options: argparse.Namespace) -> int:
    """Write the page.

    Args:
        options: Of the command line.

    Returns:
        The exit code: 1 when a row is wrong or there are none, 2 when the command cannot be run so.
    """
    from whetstone_artifacts.data.review import draw, review_page
    from whetstone_artifacts.replacing import replacing

    rows = _Rows(options.files)
    drawn = draw(rows, max(1, options.count), options.seed)
    if not drawn:
        sys.stderr.write("whetstone: there are no rows to review\n")
        return EXIT_INVALID
    page = review_page(drawn, total=rows.count)
    with replacing(options.output) as temporary:
        temporary.write_text(page, encoding="utf-8", errors="replace")
    print(f"{options.output}: {len(drawn)} of {rows.count} rows")
    return 0


class _Rows:
    """The rows of files, counted as they pass."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files
        self.count = 0

    def __iter__(self) -> "Iterator[Sampled]":
        from whetstone_artifacts.data.reading import read_all
        from whetstone_artifacts.data.review import Sampled

        for read in read_all(self._files):
            self.count += 1
            yield Sampled(file=read.file, row=read.number, example=read.example)
