"""The prepared data: rows as token ids and labels in Arrow, with a report. Written by Prepare, read by Train."""

from pathlib import Path

from pydantic import Field
from whetstone_api.adapter_artifact import DatasetIdentity, TemplateCase
from whetstone_api.training_data import DatasetReport
from whetstone_api.wire import WireModel

PREPARED_FOLDER = "prepared"
ROWS_FILE = "rows.arrow"
"""Arrow IPC stream with columns `input_ids` and `labels` (lists of int32): memory-mapped, so data of any size fits."""
EVALUATION_FILE = "evaluation.arrow"
"""Rows that are held out for the evaluation, in the same form; absent where none are."""
REPORT_FILE = "report.json"


class Segment(WireModel):
    """A run of text of a rendered row."""

    text: str
    learned: bool
    """Whether it carries loss."""


class Sample(WireModel):
    """A rendered row, for people to check template and mask."""

    dataset: str
    row: int
    segments: list[Segment]
    rejected: list[Segment] | None = None
    """Of a pair: the rejected side, where `segments` is the chosen one."""


class DatasetCounts(WireModel):
    """Where the rows of one dataset went; each is counted once, but for those that are truncated.

    A conversation that is rendered to one row a turn counts as several, but in `read`.
    """

    name: str
    read: int
    filtered: int
    """Left out by the filter."""
    undrawn: int
    """Left out by a weight below 1."""
    dropped: int
    """Left out because they are too long."""
    duplicates: int
    """Left out because an earlier row, of any dataset, is the same once rendered."""
    learned: int
    """Trained on, each counted once, whatever its weight."""
    held_out: int
    """Kept for the evaluation."""
    truncated: int
    """Of all rows: those that lost their end."""


class PreparedReport(WireModel):
    """What Prepare made."""

    recipe_digest: str
    recipe: dict[str, object]
    dataset: DatasetReport
    datasets: list[DatasetIdentity]
    """With the rows of each that are trained on."""
    counts: list[DatasetCounts] = Field(default_factory=list)
    """Where the rows of each dataset went."""
    task_digests: list[str]
    samples: list[Sample]
    templates: list[TemplateCase] = Field(default_factory=list)
    """For the probe: conversations with what the template made of them."""


def read_report(workspace: Path) -> PreparedReport:
    """Return the report of the prepared data in a workspace."""
    return PreparedReport.model_validate_json((workspace / PREPARED_FOLDER / REPORT_FILE).read_bytes())
