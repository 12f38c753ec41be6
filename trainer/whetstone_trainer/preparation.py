"""One pass over the data: from rows to files of masked tokens, with all that is counted on the way."""

from dataclasses import asdict, replace
from decimal import Decimal
from hashlib import blake2b
from pathlib import Path
from typing import Any

from whetstone_api.adapter_artifact import DatasetIdentity, TemplateCase
from whetstone_api.jobs import DatasetFile, TrainingConfig
from whetstone_api.training_data import DatasetReport, TooLong
from whetstone_api.training_evaluation import EvaluationReport
from whetstone_api.vocabulary import Reason
from whetstone_artifacts.data.formats import to_api

from whetstone_trainer.advice import AGENT_TURNS, Nature, advise
from whetstone_trainer.bounds import Tally, require_bounds, total_of
from whetstone_trainer.dataset import Row, invalid_row, read_rows
from whetstone_trainer.errors import UserError
from whetstone_trainer.figures import Figures
from whetstone_trainer.preference_rows import RenderedPair, preference_of, render_pair
from whetstone_trainer.prepared import (
    EVALUATION_FILE,
    ROWS_FILE,
    DatasetCounts,
    PreparedReport,
    Sample,
    Segment,
)
from whetstone_trainer.recipe import Recipe
from whetstone_trainer.render import Rendered, Renderer, TemplateError, is_optimal
from whetstone_trainer.rows_file import COLUMNS, PAIR_COLUMNS, RowWriter, row_writer
from whetstone_trainer.selection import copies, passes
from whetstone_trainer.split import plan_split

SAMPLES = 3
TEMPLATES = 3
TEMPLATE_TOKENS = 1024
"""Longest start of a conversation that the probe keeps for the comparison of templates."""
LENGTH_STEP = 64
"""`maxLength` from the data is a multiple of this: GPUs are faster on round sizes."""


class Preparation:
    """Reads, renders and writes the rows of a recipe.

    Args:
        config: The job's configuration.
        recipe: What is asked.
        tokenizer: The base model's.
    """

    def __init__(self, config: TrainingConfig, recipe: Recipe, tokenizer: Any) -> None:
        self._config = config
        self._recipe = recipe
        self._renderer = Renderer(tokenizer)
        self._seen = _Seen()
        self._learned, self._held_out = Figures(), Figures()
        self._nature = Nature()
        self._split_rows = 0
        self._tallies: list[Tally] = []
        self._tasks: set[str] = set()
        self._samples: list[Sample] = []
        self._templates: list[TemplateCase] = []

    def write(self, folder: Path) -> None:
        """Write the files of rows.

        Raises:
            UserError: A row is wrong.
        """
        split = plan_split(self._config, self._recipe.settings.seed)
        preference = preference_of(self._config)
        columns = PAIR_COLUMNS if preference else COLUMNS
        files = (folder / ROWS_FILE, folder / EVALUATION_FILE)
        with row_writer(files[0], columns) as learned, row_writer(files[1], columns) as held_out:
            for dataset in self._config.datasets:
                tally = Tally()
                self._tallies.append(tally)
                for row in read_rows(dataset, preference):
                    tally.read += 1
                    if not passes(dataset, row):
                        tally.filtered += 1
                    elif split.holds_out(dataset, row):
                        self._hold_out(dataset, row, tally=tally, writer=held_out)
                    else:
                        self._learn(dataset, row, tally=tally, writer=learned)
        if self._config.evaluation is None:
            (folder / EVALUATION_FILE).unlink()

    def report(self) -> PreparedReport:
        """Return what was found.

        Raises:
            UserError: The bounds do not hold.
        """
        tallied = list(zip(self._config.datasets, self._recipe.dataset_digests, self._tallies, strict=True))
        counts = [DatasetCounts(name=dataset.name, **asdict(tally)) for dataset, _, tally in tallied]
        require_bounds(self._config, counts)
        return PreparedReport(
            recipe_digest=self._recipe.digest,
            recipe=self._recipe.content,
            dataset=self._figures(total_of(counts)),
            datasets=[
                DatasetIdentity(name=dataset.name, digest=digest, rows=tally.learned)
                for dataset, digest, tally in tallied
            ],
            counts=counts,
            task_digests=sorted(self._tasks),
            samples=self._samples,
            templates=self._templates,
        )

    def _hold_out(self, dataset: DatasetFile, row: Row, *, tally: Tally, writer: RowWriter) -> None:
        for rendered in self._parts(dataset, row, tally):
            if self._admit(row, rendered, tally, is_held_out=True):
                tally.held_out += 1
                self._held_out.add(rendered)
                writer.add(rendered)

    def _learn(self, dataset: DatasetFile, row: Row, *, tally: Tally, writer: RowWriter) -> None:
        times = copies(dataset, row, self._recipe.settings.seed)
        if not times:
            tally.undrawn += 1
            return
        parts = [part for part in self._parts(dataset, row, tally) if self._admit(row, part, tally, is_held_out=False)]
        tally.learned += len(parts)
        for rendered in parts:
            for _ in range(times):
                self._learned.add(rendered)
                writer.add(rendered)
            self._keep(dataset, row, rendered)
        if parts:
            self._look_at(row)

    def _parts(self, dataset: DatasetFile, row: Row, tally: Tally) -> list[Rendered]:
        """Render a row within the limit: as one, as one a turn where the template rewrites turns, or as none."""
        parts = render_row(self._renderer, dataset, row=row, config=self._config)
        self._split_rows += len(parts) > 1
        limit = self._recipe.settings.max_length
        short = [self._within(limit, part, dataset=dataset, row=row) for part in parts]
        kept = [part for part in short if part is not None]
        tally.dropped += len(parts) - len(kept)
        tally.truncated += sum(part not in parts for part in kept)
        return kept

    def _within(self, limit: int, rendered: Rendered, *, dataset: DatasetFile, row: Row) -> Rendered | None:
        if rendered.longest <= limit:
            return rendered
        policy = self._config.preparation.too_long
        if policy is TooLong.FAIL:
            raise UserError(
                Reason.DATASET_TOO_LONG,
                f"{dataset.field}, row {row.number}: has {rendered.longest} tokens, the limit is {limit};"
                " shorten the row, raise spec.hyperparameters.maxLength as far as the model's context allows, or say in"
                " spec.preparation.tooLong what becomes of such rows",
            )
        return cut(rendered, limit) if policy is TooLong.TRUNCATE else None

    def _admit(self, row: Row, rendered: Rendered, tally: Tally, *, is_held_out: bool) -> bool:
        is_new = self._seen.admit(rendered, is_held_out=is_held_out)
        if row.task and self._seen.is_learned(rendered):
            self._tasks.add(row.task)
        tally.duplicates += not is_new
        return is_new

    def _look_at(self, row: Row) -> None:
        nature = self._nature
        nature.rows += 1
        nature.named += row.task is not None
        nature.stepwise += row.turns >= AGENT_TURNS
        nature.calling += any("tool_calls" in message for message in row.messages)

    def _keep(self, dataset: DatasetFile, row: Row, rendered: Rendered) -> None:
        if len(self._samples) < SAMPLES:
            self._samples.append(_sample(self._renderer, dataset, row=row, rendered=rendered))
        if len(self._templates) < TEMPLATES:
            start = template_case(row, rendered)
            if start is not None and start not in self._templates:
                self._templates.append(start)

    def _figures(self, total: Tally) -> DatasetReport:
        learned, held = self._learned, self._held_out
        longest = max(learned.longest, held.longest)
        from_data = min(-(-longest // LENGTH_STEP) * LENGTH_STEP, self._recipe.settings.max_length)
        return DatasetReport(
            rows=learned.rows,
            tokens=learned.tokens,
            loss_tokens=learned.loss_tokens,
            loss_share=_share(learned.loss_tokens, learned.tokens),
            longest=learned.longest,
            max_length=self._config.hyperparameters.max_length or from_data,
            read=total.read,
            filtered=total.filtered,
            undrawn=total.undrawn,
            duplicates=total.duplicates,
            split_rows=self._split_rows or None,
            dropped=total.dropped,
            truncated=total.truncated,
            truncated_share=_share(total.truncated, total.rendered) if total.truncated else None,
            lengths=learned.lengths(),
            evaluation=_evaluation(held) if held.rows else None,
            advice=advise(self._nature, truncated=total.truncated) or None,
            recipe_digest=self._recipe.digest,
        )


def render_row(renderer: Renderer, dataset: DatasetFile, *, row: Row, config: TrainingConfig) -> list[Rendered]:
    """Render a row: as one, or as one a turn where the template rewrites earlier turns.

    Raises:
        UserError: `DATASET_INVALID`.
    """
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
    if not any(part.loss_tokens for part in parts):
        raise invalid_row(
            dataset, row.number, "has no token to learn; write an answer of the assistant that is not marked"
        )
    return parts


def cut(rendered: Rendered, limit: int) -> Rendered | None:
    """Return a row without what is past a limit of tokens; None when nothing would be learned of it, or of a side."""
    spans = [(start, min(end, limit)) for start, end in rendered.spans if start < limit]
    ids = rendered.input_ids[:limit]
    if not spans:
        return None
    if not isinstance(rendered, RenderedPair):
        return replace(rendered, input_ids=ids, spans=spans)
    rejected = cut(rendered.rejected, limit)
    if rejected is None or rejected.input_ids == ids:
        return None
    return replace(rendered, input_ids=ids, spans=spans, rejected=rejected)


def template_case(row: Row, rendered: Rendered) -> TemplateCase | None:
    """Return what the template made of a row up to the first learned answer; None where it is too long or was cut."""
    start = rendered.asked
    if start > min(TEMPLATE_TOKENS, len(rendered.input_ids)):
        return None
    return TemplateCase(
        messages=to_api(row.messages[: rendered.turn]), tools=row.tools, token_ids=rendered.input_ids[:start]
    )


class _Seen:
    """Rows that came by already. Holds 16 bytes a row, beside what a set needs."""

    def __init__(self) -> None:
        self._learned: set[bytes] = set()
        self._held_out: set[bytes] = set()

    def admit(self, rendered: Rendered, *, is_held_out: bool) -> bool:
        """Return whether no row before was the same."""
        key = _key(rendered)
        if key in self._learned or key in self._held_out:
            return False
        (self._held_out if is_held_out else self._learned).add(key)
        return True

    def is_learned(self, rendered: Rendered) -> bool:
        """Return whether the row, or one that is the same, is trained on."""
        return _key(rendered) in self._learned


def _key(rendered: Rendered) -> bytes:
    sides = (rendered, rendered.rejected) if isinstance(rendered, RenderedPair) else (rendered,)
    return blake2b(repr([(side.input_ids, side.spans) for side in sides]).encode(), digest_size=16).digest()


def _share(part: int, whole: int) -> str:
    return f"{Decimal(part) / whole:.4f}"


def _evaluation(held: Figures) -> EvaluationReport:
    return EvaluationReport(rows=held.rows, tokens=held.tokens, loss_tokens=held.loss_tokens, longest=held.longest)


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
