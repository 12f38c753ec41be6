"""Figures, how they are shown, and the page that holds them."""

import json
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from whetstone_bench.machine import processor


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One measured thing.

    Args:
        what: What was measured.
        unit: Unit of the values.
        median: Their median.
        low: The smallest.
        high: The largest.
        samples: How many there were.
    """

    what: str
    unit: str
    median: float
    low: float
    high: float
    samples: int

    def row(self) -> tuple[str, str, str, str]:
        """Return the cells of a table's row."""
        between = "" if self.samples == 1 else f"{self.low:g} to {self.high:g}"
        return self.what, f"{self.median:g} {self.unit}".strip(), between, str(self.samples)


def spread(what: str, values: Sequence[float], unit: str, *, digits: int = 3) -> Figure:
    """Return a figure of several samples."""
    rounded = [round(value, digits) for value in values]
    return Figure(
        what=what,
        unit=unit,
        median=round(statistics.median(values), digits),
        low=min(rounded),
        high=max(rounded),
        samples=len(values),
    )


def once(what: str, value: float, unit: str) -> Figure:
    """Return a figure of one sample."""
    return spread(what, [value], unit)


def machine() -> dict[str, Any]:
    """Describe the machine and how busy it was with other things."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "loadBefore": round(os.getloadavg()[0], 2),
        "at": datetime.now(UTC).isoformat(timespec="minutes"),
    }


def write_json(path: Path, described: dict[str, Any], figures: Sequence[Figure], **more: Any) -> None:
    """Write the figures for machines, and what else there is to tell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    told = {"machine": described, "figures": [asdict(one) for one in figures], **more}
    path.write_text(json.dumps(told, indent=2) + "\n")


def read_json(path: Path) -> tuple[dict[str, Any], list[Figure]]:
    """Return the machine and the figures that a file holds."""
    told = json.loads(path.read_text())
    return told["machine"], [Figure(**one) for one in told["figures"]]


def show(described: dict[str, Any], figures: Sequence[Figure]) -> None:
    """Print the figures."""
    table = Table(title=f"Whetstone on {sentence(described)}", show_lines=False)
    for column in ("what", "median", "from to", "samples"):
        table.add_column(column)
    for figure in figures:
        table.add_row(*figure.row())
    Console(width=140).print(table)


def sentence(described: dict[str, Any]) -> str:
    """Name the machine in one line."""
    return (
        f"{described['cores']} cores of {described['processor']}, Python {described['python']}, "
        f"load {described['loadBefore']} at the start, {described['at'][:10]}"
    )


BEGINS = {
    "serving": "<!-- figures of make bench -->\n",
    "training": "<!-- figures of make bench ARGS=training -->\n",
    "benchmark": "<!-- figures of make bench ARGS=benchmark -->\n",
    "tooluse": "<!-- figures of make bench ARGS=tooluse -->\n",
    "scale": "<!-- figures of make bench ARGS=scale -->\n",
    "soak": "<!-- figures of make bench ARGS=soak -->\n",
}
END = "<!-- end of the figures -->\n"


def fill_page(page: Path, described: dict[str, Any], figures: Sequence[Figure], *, part: str) -> None:
    """Replace the table of the page that is kept under version control."""
    rows = ["| What | Median | From to | Samples |", "|---|---|---|---|"]
    rows += ["| " + " | ".join(figure.row()) + " |" for figure in figures]
    text, begin = page.read_text(), BEGINS[part]
    before, rest = text.split(begin, 1)
    after = rest.split(END, 1)[1]
    lines = "\n".join(rows)
    page.write_text(f"{before}{begin}\nMeasured on {sentence(described)}.\n\n{lines}\n\n{END}{after}")
