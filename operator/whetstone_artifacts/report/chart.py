"""The dot-and-whisker chart: a mean with its interval, drawn as SVG."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from whetstone_api.benchmark_result import Interval

WIDTH: Final = 400
EDGE: Final = 10
ROW: Final = 26


@dataclass(frozen=True, kw_only=True)
class Whisker:
    """One row of the chart, in pixels.

    Args:
        label: Name of what was measured.
        text: Its figures in words.
        y: Height of the row's middle.
        dot: Place of the mean.
        low: Left end of the interval; the dot's place where there is none.
        high: Right end.
    """

    label: str
    text: str
    y: int
    dot: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart."""

    rows: list[Whisker]
    ticks: list[tuple[float, str]]
    """Place and label."""
    height: int


def chart(measured: Sequence[tuple[str, str, Interval | None]], *, least: float = 0.0, most: float = 1.0) -> Chart:
    """Return a chart of means.

    Args:
        measured: Label, mean and interval.
        least: Left end of the axis, unless a figure lies left of it.
        most: Right end likewise.
    """
    values = [float(mean) for _, mean, _ in measured]
    values += [float(end) for _, _, interval in measured if interval for end in (interval.low, interval.high)]
    low, high = min([least, *values]), max([most, *values])

    def place(value: float) -> float:
        return round(EDGE + (value - low) / (high - low) * (WIDTH - 2 * EDGE), 1)

    rows = [
        Whisker(
            label=label,
            text=f"{label}: {mean}" + (f" ({interval.low} to {interval.high})" if interval else ""),
            y=ROW // 2 + number * ROW,
            dot=place(float(mean)),
            low=place(float(interval.low if interval else mean)),
            high=place(float(interval.high if interval else mean)),
        )
        for number, (label, mean, interval) in enumerate(measured)
    ]
    ends = sorted({low, 0.0, high} if low < 0 else {low, (low + high) / 2, high})
    return Chart(rows=rows, ticks=[(place(tick), f"{tick:g}") for tick in ends], height=len(rows) * ROW + 20)
