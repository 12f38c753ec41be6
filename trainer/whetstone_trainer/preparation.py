"""One pass over the data: from rows to files of masked tokens, with all that is counted on the way."""

from array import array
from collections.abc import Iterator
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path

from whetstone_api.adapter_artifact import DatasetIdentity, TemplateCase
from whetstone_api.jobs import DatasetFile, TrainingConfig
from whetstone_api.training_data import DatasetReport
from whetstone_api.training_evaluation import EvaluationReport
from whetstone_artifacts.data.formats import to_api
from whetstone_artifacts.data.lines import Chunk

from whetstone_trainer.advice import AGENT_TURNS, Nature, advise
from whetstone_trainer.bounds import Tally, require_bounds, total_of
from whetstone_trainer.dataset import Row, dataset_chunks, row_of
from whetstone_trainer.figures import Figures
from whetstone_trainer.preference_rows import RenderedPair, preference_of
from whetstone_trainer.prepared import (
    EVALUATION_FILE,
    ROWS_FILE,
    DatasetCounts,
    PreparedReport,
    Sample,
    Segment,
)
from whetstone_trainer.recipe import Recipe
from whetstone_trainer.render import Rendered, Renderer
from whetstone_trainer.row_pool import RowProcesses
from whetstone_trainer.row_work import Part, RowWork, WorkedRow
from whetstone_trainer.rows_file import COLUMNS, PAIR_COLUMNS, RowWriter, row_writer
from whetstone_trainer.split import Split, share_of, split_by_dataset, split_by_numbers

SAMPLES = 3
TEMPLATES = 3
TEMPLATE_TOKENS = 1024
"""Longest start of a conversation that the probe keeps for the comparison of templates."""
LENGTH_STEP = 64
"""`maxLength` from the data is a multiple of this: GPUs are faster on round sizes."""


class Preparation:
    """Has the rows of a recipe rendered, and writes and counts them.

    Args:
        config: The job's configuration.
        recipe: What is asked.
        renderer: Renders with the base model's template.
    """

    def __init__(self, config: TrainingConfig, recipe: Recipe, renderer: Renderer) -> None:
        self._config = config
        self._recipe = recipe
        self._renderer = renderer
        self._preference = preference_of(config)
        self._seen = _Seen()
        self._learned, self._held_out = Figures(), Figures()
        self._nature = Nature()
        self._split_rows = 0
        self._tallies = [Tally() for _ in config.datasets]
        self._tasks: set[str] = set()
        self._samples: list[Sample] = []
        self._templates: list[TemplateCase] = []

    def write(self, folder: Path, processes: RowProcesses) -> None:
        """Write the files of rows.

        Args:
            folder: Where.
            processes: What renders the rows.

        Raises:
            UserError: A row is wrong.
            WorkerLostError: A process that renders was killed.
        """
        split = self._split(processes)
        columns = PAIR_COLUMNS if self._preference else COLUMNS
        files = (folder / ROWS_FILE, folder / EVALUATION_FILE)
        with row_writer(files[0], columns) as learned, row_writer(files[1], columns) as held_out:
            tasks = ((place, chunk, split) for place, chunk in self._chunks())
            for (place, chunk, _), rows in processes.map(RowWork.work, tasks):
                for row in rows:
                    self._take(place, chunk, row=row, writer=held_out if row.held_out else learned)
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

    def _chunks(self) -> Iterator[tuple[int, Chunk]]:
        for place, dataset in enumerate(self._config.datasets):
            for chunk in dataset_chunks(dataset):
                yield place, chunk

    def _split(self, processes: RowProcesses) -> Split:
        """Return the split; with a share, this reads all rows once."""
        seed, share = self._recipe.settings.seed, share_of(self._config)
        if share is None:
            return split_by_dataset(self._config, seed)
        numbers = array("Q")
        for _, some in processes.map(RowWork.numbers, self._chunks()):
            numbers.extend(some)
        return split_by_numbers(numbers, share, seed)

    def _take(self, place: int, chunk: Chunk, *, row: WorkedRow, writer: RowWriter) -> None:
        tally = self._tallies[place]
        tally.read += 1
        tally.filtered += not row.passes
        tally.undrawn += row.passes and not row.times
        tally.dropped += row.made - len(row.parts)
        tally.truncated += row.truncated
        self._split_rows += row.made > 1
        new = [part for part in row.parts if self._admit(row, part, tally)]
        for part in new:
            for _ in range(row.times):
                (self._held_out if row.held_out else self._learned).add(part.rendered)
                writer.add(part.rendered)
        if row.held_out:
            tally.held_out += len(new)
            return
        tally.learned += len(new)
        for part in new:
            self._keep(place, chunk, row=row, rendered=part.rendered)
        if new:
            self._look_at(row)

    def _admit(self, row: WorkedRow, part: Part, tally: Tally) -> bool:
        is_new = self._seen.admit(part.key, is_held_out=row.held_out)
        if row.task and self._seen.is_learned(part.key):
            self._tasks.add(row.task)
        tally.duplicates += not is_new
        return is_new

    def _look_at(self, row: WorkedRow) -> None:
        nature = self._nature
        nature.rows += 1
        nature.named += row.task is not None
        nature.stepwise += row.turns >= AGENT_TURNS
        nature.calling += row.calls

    def _keep(self, place: int, chunk: Chunk, *, row: WorkedRow, rendered: Rendered) -> None:
        dataset = self._config.datasets[place]
        if len(self._samples) < SAMPLES:
            self._samples.append(_sample(self._renderer, dataset, number=row.number, rendered=rendered))
        if len(self._templates) < TEMPLATES and rendered.asked <= TEMPLATE_TOKENS:
            read = row_of(dataset, chunk, number=row.number, preference=self._preference)
            start = template_case(read, rendered)
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


def template_case(row: Row, rendered: Rendered) -> TemplateCase | None:
    """Return what the template made of a row up to the first learned answer; None where it is too long or was cut."""
    start = rendered.asked
    if start > min(TEMPLATE_TOKENS, len(rendered.input_ids)):
        return None
    return TemplateCase(
        messages=to_api(row.messages[: rendered.turn]), tools=row.tools, token_ids=list(rendered.input_ids[:start])
    )


class _Seen:
    """Rows that came by already. Holds 16 bytes a row, beside what a set needs."""

    def __init__(self) -> None:
        self._learned: set[bytes] = set()
        self._held_out: set[bytes] = set()

    def admit(self, key: bytes, *, is_held_out: bool) -> bool:
        """Return whether no row before was the same."""
        if key in self._learned or key in self._held_out:
            return False
        (self._held_out if is_held_out else self._learned).add(key)
        return True

    def is_learned(self, key: bytes) -> bool:
        """Return whether the row, or one that is the same, is trained on."""
        return key in self._learned


def _share(part: int, whole: int) -> str:
    return f"{Decimal(part) / whole:.4f}"


def _evaluation(held: Figures) -> EvaluationReport:
    return EvaluationReport(rows=held.rows, tokens=held.tokens, loss_tokens=held.loss_tokens, longest=held.longest)


def _sample(renderer: Renderer, dataset: DatasetFile, *, number: int, rendered: Rendered) -> Sample:
    return Sample(
        dataset=dataset.name,
        row=number,
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
