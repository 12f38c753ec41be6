"""Validate and Prepare: from the user's files to masked token rows. Loads no weights and needs no accelerator."""

import logging
import math
import secrets
import shutil
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

from whetstone_api.adapter_artifact import DatasetIdentity, TemplateCase
from whetstone_api.jobs import DatasetFile, TrainingConfig
from whetstone_api.training_data import DatasetReport, Lengths
from whetstone_api.vocabulary import Reason

from whetstone_trainer.dataset import Row, invalid_row, read_rows
from whetstone_trainer.errors import UserError
from whetstone_trainer.formats import to_api
from whetstone_trainer.prepared import (
    PREPARED_FOLDER,
    REPORT_FILE,
    ROWS_FILE,
    PreparedReport,
    Sample,
    Segment,
    read_report,
)
from whetstone_trainer.recipe import Recipe
from whetstone_trainer.render import Rendered, Renderer, TemplateError
from whetstone_trainer.snapshots import seal, verified_recipe

log = logging.getLogger(__name__)

CHUNK_ROWS = 512
"""Rows held in memory before they are written."""
SAMPLES = 3
TEMPLATES = 3
TEMPLATE_TOKENS = 1024
"""Longest start of a conversation that the probe keeps for the comparison of templates."""


def prepare_data(config: TrainingConfig, recipe: Recipe) -> PreparedReport:
    """Make the prepared data of a recipe in the workspace, or find it there.

    Args:
        config: The job's configuration.
        recipe: What is asked.

    Returns:
        The report of the data.

    Raises:
        UserError: A dataset is wrong, or the base model has no usable chat template.
    """
    workspace = Path(config.workspace_path)
    place = workspace / PREPARED_FOLDER
    if verified_recipe(place) == recipe.digest:
        log.info("the prepared data of this recipe is at %s and is used", place)
        return read_report(workspace)
    workspace.mkdir(parents=True, exist_ok=True)
    for stale in workspace.glob(f".{PREPARED_FOLDER}.partial-*"):
        shutil.rmtree(stale, ignore_errors=True)
    temporary = workspace / f".{PREPARED_FOLDER}.partial-{secrets.token_hex(4)}"
    temporary.mkdir()
    try:
        report = _write(config, recipe, temporary)
        seal(temporary, place, recipe_digest=recipe.digest)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return report


def load_tokenizer(config: TrainingConfig) -> Any:
    """Load the base model's tokenizer.

    Raises:
        UserError: `NO_CHAT_TEMPLATE`, or `BASE_MODEL_NOT_FOUND` for a folder without a usable tokenizer.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(config.base_model_path, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            Reason.BASE_MODEL_NOT_FOUND,
            f"spec.baseModel ({config.base_model_source}): its tokenizer cannot be read ({error});"
            " put tokenizer.json and tokenizer_config.json into the folder",
        ) from error
    if not tokenizer.chat_template:
        raise UserError(
            Reason.NO_CHAT_TEMPLATE,
            f"spec.baseModel ({config.base_model_source}): the model has no chat template; use an instruct model or"
            " put a chat_template.jinja into its folder",
        )
    return tokenizer


def template_case(row: Row, rendered: Rendered) -> TemplateCase | None:
    """Return what the template made of a row up to the first learned answer; None where that is too long to keep."""
    start, _ = rendered.spans[0]
    if start > TEMPLATE_TOKENS:
        return None
    return TemplateCase(
        messages=to_api(row.messages[: rendered.turn]), tools=row.tools, token_ids=rendered.input_ids[:start]
    )


class _Totals:
    """Figures over all rows."""

    def __init__(self) -> None:
        self.rows = 0
        self.tokens = 0
        self.loss_tokens = 0
        self.lengths = array("I")
        self.duplicates = 0
        self._seen: set[bytes] = set()
        self.tasks: set[str] = set()
        self.samples: list[Sample] = []
        self.templates: list[TemplateCase] = []

    def is_new(self, row: Row, rendered: Rendered) -> bool:
        """Return whether no row before was the same, and count those that were; the task of either is in the data."""
        if row.task:
            self.tasks.add(row.task)
        key = blake2b(repr((rendered.input_ids, rendered.spans)).encode(), digest_size=16).digest()
        if key in self._seen:
            self.duplicates += 1
            return False
        self._seen.add(key)
        return True

    def add(self, row: Row, rendered: Rendered) -> None:
        start = template_case(row, rendered)
        if start is not None and len(self.templates) < TEMPLATES and start not in self.templates:
            self.templates.append(start)
        self.rows += 1
        self.tokens += len(rendered.input_ids)
        self.loss_tokens += rendered.loss_tokens
        self.lengths.append(len(rendered.input_ids))

    def report(self, recipe_digest: str) -> DatasetReport:
        """Return the figures."""
        ordered = sorted(self.lengths)
        p50, p90, p99 = (ordered[math.ceil(len(ordered) * share) - 1] for share in (0.5, 0.9, 0.99))
        return DatasetReport(
            rows=self.rows,
            tokens=self.tokens,
            loss_tokens=self.loss_tokens,
            longest=ordered[-1],
            duplicates=self.duplicates,
            lengths=Lengths(p50=p50, p90=p90, p99=p99),
            recipe_digest=recipe_digest,
        )


def _write(config: TrainingConfig, recipe: Recipe, folder: Path) -> PreparedReport:
    renderer = Renderer(load_tokenizer(config))
    totals = _Totals()
    identities: list[DatasetIdentity] = []
    with _row_writer(folder / ROWS_FILE) as writer:
        for dataset, digest in zip(config.datasets, recipe.dataset_digests, strict=True):
            before = totals.rows
            for row in read_rows(dataset):
                rendered = _render(renderer, dataset, row=row, config=config, limit=recipe.settings.max_length)
                if not totals.is_new(row, rendered):
                    continue
                if len(totals.samples) < SAMPLES:
                    totals.samples.append(_sample(renderer, dataset, row=row, rendered=rendered))
                totals.add(row, rendered)
                writer.add(rendered)
            identities.append(DatasetIdentity(name=dataset.name, digest=digest, rows=totals.rows - before))
    report = PreparedReport(
        recipe_digest=recipe.digest,
        recipe=recipe.content,
        dataset=totals.report(recipe.digest),
        datasets=identities,
        task_digests=sorted(totals.tasks),
        samples=totals.samples,
        templates=totals.templates,
    )
    (folder / REPORT_FILE).write_text(report.to_json())
    return report


def _render(renderer: Renderer, dataset: DatasetFile, *, row: Row, config: TrainingConfig, limit: int) -> Rendered:
    try:
        rendered = renderer.render(row.messages, tools=row.tools, target=config.loss.target)
    except TemplateError as error:
        raise invalid_row(dataset, row.number, str(error)) from error
    if len(rendered.input_ids) > limit:
        raise UserError(
            Reason.DATASET_TOO_LONG,
            f"{dataset.field}, row {row.number}: has {len(rendered.input_ids)} tokens, the limit is {limit};"
            " shorten the row, or raise spec.hyperparameters.maxLength as far as the model's context allows",
        )
    if rendered.loss_tokens == 0:
        raise invalid_row(dataset, row.number, "has no token to learn once rendered; write an answer of the assistant")
    return rendered


def _sample(renderer: Renderer, dataset: DatasetFile, *, row: Row, rendered: Rendered) -> Sample:
    segments: list[Segment] = []
    position = 0
    for start, end in [*rendered.spans, (len(rendered.input_ids), len(rendered.input_ids))]:
        for first, last, learned in ((position, start, False), (start, end, True)):
            if last > first:
                text = renderer.decode(rendered.input_ids[first:last])
                segments.append(Segment(text=text, learned=learned))
        position = end
    return Sample(dataset=dataset.name, row=row.number, segments=segments)


class _RowWriter:
    """Writes rows in chunks to an Arrow stream."""

    def __init__(self, stream: Any, schema: Any) -> None:
        self._stream = stream
        self._schema = schema
        self._pending: list[Rendered] = []

    def add(self, rendered: Rendered) -> None:
        self._pending.append(rendered)
        if len(self._pending) >= CHUNK_ROWS:
            self.flush()

    def flush(self) -> None:
        import pyarrow as pa

        if not self._pending:
            return
        columns = [[row.input_ids for row in self._pending], [row.labels for row in self._pending]]
        arrays = [pa.array(column, type=field.type) for column, field in zip(columns, self._schema, strict=True)]
        self._stream.write_batch(pa.record_batch(arrays, schema=self._schema))
        self._pending = []


@contextmanager
def _row_writer(path: Path) -> Iterator[_RowWriter]:
    import pyarrow as pa

    schema = pa.schema([("input_ids", pa.list_(pa.int32())), ("labels", pa.list_(pa.int32()))])
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as stream:
        writer = _RowWriter(stream, schema)
        yield writer
        writer.flush()
