"""Validate and Prepare: from the user's files to masked token rows. Loads no weights and needs no accelerator."""

import logging
import secrets
import shutil
from hashlib import blake2b
from pathlib import Path
from typing import Any

from whetstone_api.adapter_artifact import DatasetIdentity, TemplateCase
from whetstone_api.jobs import DatasetFile, TrainingConfig
from whetstone_api.training_data import DatasetReport
from whetstone_api.training_evaluation import EvaluationReport
from whetstone_api.vocabulary import Reason

from whetstone_trainer.dataset import Row, invalid_row, read_rows
from whetstone_trainer.errors import UserError
from whetstone_trainer.figures import Figures
from whetstone_trainer.formats import to_api
from whetstone_trainer.preference_rows import RenderedPair, preference_of, render_pair
from whetstone_trainer.prepared import (
    EVALUATION_FILE,
    PREPARED_FOLDER,
    REPORT_FILE,
    ROWS_FILE,
    PreparedReport,
    Sample,
    Segment,
    read_report,
)
from whetstone_trainer.recipe import Recipe
from whetstone_trainer.render import Rendered, Renderer, TemplateError, is_optimal
from whetstone_trainer.rows_file import COLUMNS, PAIR_COLUMNS, row_writer
from whetstone_trainer.snapshots import seal, verified_recipe
from whetstone_trainer.split import plan_split

log = logging.getLogger(__name__)

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


class _Seen:
    """Rows that came by already. Holds 16 bytes a row, beside what a set needs."""

    def __init__(self) -> None:
        self.duplicates = 0
        self._learned: set[bytes] = set()
        self._held_out: set[bytes] = set()

    def admit(self, rendered: Rendered, *, is_held_out: bool) -> bool:
        """Return whether no row before was the same, and count those that were."""
        key = _key(rendered)
        if key in self._learned or key in self._held_out:
            self.duplicates += 1
            return False
        (self._held_out if is_held_out else self._learned).add(key)
        return True

    def is_learned(self, rendered: Rendered) -> bool:
        """Return whether the row, or one that is the same, is trained on."""
        return _key(rendered) in self._learned


def _key(rendered: Rendered) -> bytes:
    sides = (rendered, rendered.rejected) if isinstance(rendered, RenderedPair) else (rendered,)
    return blake2b(repr([(side.input_ids, side.spans) for side in sides]).encode(), digest_size=16).digest()


class _Preparation:
    """Collects what one pass over the data finds."""

    def __init__(self, config: TrainingConfig, recipe: Recipe) -> None:
        self._config = config
        self._recipe = recipe
        self._renderer = Renderer(load_tokenizer(config))
        self._seen = _Seen()
        self.learned, self.held_out = Figures(), Figures()
        self.split_rows = 0
        self.tasks: set[str] = set()
        self.samples: list[Sample] = []
        self.templates: list[TemplateCase] = []

    def write(self, folder: Path) -> list[DatasetIdentity]:
        """Write the files of rows and return the datasets with the rows that are trained on."""
        split = plan_split(self._config, self._recipe.settings.seed)
        identities: list[DatasetIdentity] = []
        preference = preference_of(self._config)
        columns = PAIR_COLUMNS if preference else COLUMNS
        files = (folder / ROWS_FILE, folder / EVALUATION_FILE)
        with row_writer(files[0], columns) as learned, row_writer(files[1], columns) as held_out:
            for dataset, digest in zip(self._config.datasets, self._recipe.dataset_digests, strict=True):
                before = self.learned.rows
                for row in read_rows(dataset, preference):
                    is_held_out = split.holds_out(dataset, row)
                    for rendered in self._parts(dataset, row):
                        if self._take(dataset, row, rendered=rendered, is_held_out=is_held_out):
                            (held_out if is_held_out else learned).add(rendered)
                identities.append(DatasetIdentity(name=dataset.name, digest=digest, rows=self.learned.rows - before))
        if self._config.evaluation is None:
            (folder / EVALUATION_FILE).unlink()
        self._require_rows()
        return identities

    def _parts(self, dataset: DatasetFile, row: Row) -> list[Rendered]:
        """Render a row: as one, or as one a turn where the template rewrites earlier turns."""
        limit = self._recipe.settings.max_length
        parts = _render(self._renderer, dataset, row=row, config=self._config, limit=limit)
        self.split_rows += len(parts) > 1
        return parts

    def _take(self, dataset: DatasetFile, row: Row, *, rendered: Rendered, is_held_out: bool) -> bool:
        """Count what a row was rendered to, and return whether it is not left out."""
        is_new = self._seen.admit(rendered, is_held_out=is_held_out)
        if row.task and self._seen.is_learned(rendered):
            self.tasks.add(row.task)
        if not is_new:
            return False
        (self.held_out if is_held_out else self.learned).add(rendered)
        if not is_held_out:
            self._keep(dataset, row, rendered)
        return True

    def _keep(self, dataset: DatasetFile, row: Row, rendered: Rendered) -> None:
        if len(self.samples) < SAMPLES:
            self.samples.append(_sample(self._renderer, dataset, row=row, rendered=rendered))
        start = template_case(row, rendered)
        if start is not None and len(self.templates) < TEMPLATES and start not in self.templates:
            self.templates.append(start)

    def _require_rows(self) -> None:
        if self.learned.rows and (self.held_out.rows or self._config.evaluation is None):
            return
        side = "to learn from" if not self.learned.rows else "to evaluate on"
        raise UserError(
            Reason.DATASET_EMPTY,
            f"spec.evaluation: no row is left {side}, since every such row is the same as one of the other side; give"
            " rows that differ, or another share",
        )

    def report(self) -> DatasetReport:
        """Return the figures."""
        held = self.held_out
        return DatasetReport(
            rows=self.learned.rows,
            tokens=self.learned.tokens,
            loss_tokens=self.learned.loss_tokens,
            longest=self.learned.longest,
            duplicates=self._seen.duplicates,
            split_rows=self.split_rows or None,
            lengths=self.learned.lengths(),
            evaluation=EvaluationReport(
                rows=held.rows, tokens=held.tokens, loss_tokens=held.loss_tokens, longest=held.longest
            )
            if held.rows
            else None,
            recipe_digest=self._recipe.digest,
        )


def _write(config: TrainingConfig, recipe: Recipe, folder: Path) -> PreparedReport:
    preparation = _Preparation(config, recipe)
    identities = preparation.write(folder)
    report = PreparedReport(
        recipe_digest=recipe.digest,
        recipe=recipe.content,
        dataset=preparation.report(),
        datasets=identities,
        task_digests=sorted(preparation.tasks),
        samples=preparation.samples,
        templates=preparation.templates,
    )
    (folder / REPORT_FILE).write_text(report.to_json())
    return report


def _render(
    renderer: Renderer, dataset: DatasetFile, *, row: Row, config: TrainingConfig, limit: int
) -> list[Rendered]:
    mask = config.loss.mask_suboptimal
    parts: list[Rendered]
    try:
        if row.pair:
            parts = [render_pair(renderer, row.pair, tools=row.tools, mask_suboptimal=mask)]
        else:
            only = is_optimal if mask else None
            parts = renderer.render_rows(row.messages, tools=row.tools, target=config.loss.target, only=only)
    except TemplateError as error:
        raise invalid_row(dataset, row.number, str(error)) from error
    longest = max((part.longest for part in parts), default=0)
    if longest > limit:
        raise UserError(
            Reason.DATASET_TOO_LONG,
            f"{dataset.field}, row {row.number}: has {longest} tokens, the limit is {limit};"
            " shorten the row, or raise spec.hyperparameters.maxLength as far as the model's context allows",
        )
    if not any(part.loss_tokens for part in parts):
        raise invalid_row(
            dataset, row.number, "has no token to learn; write an answer of the assistant that is not marked"
        )
    return parts


def _sample(renderer: Renderer, dataset: DatasetFile, *, row: Row, rendered: Rendered) -> Sample:
    return Sample(
        dataset=dataset.name,
        row=row.number,
        segments=_segments(renderer, rendered),
        rejected=_segments(renderer, rendered.rejected) if isinstance(rendered, RenderedPair) else None,
    )


def _segments(renderer: Renderer, rendered: Rendered) -> list[Segment]:
    segments: list[Segment] = []
    position = 0
    for start, end in [*rendered.spans, (len(rendered.input_ids), len(rendered.input_ids))]:
        for first, last, learned in ((position, start, False), (start, end, True)):
            if last > first:
                text = renderer.decode(rendered.input_ids[first:last])
                segments.append(Segment(text=text, learned=learned))
        position = end
    return segments
