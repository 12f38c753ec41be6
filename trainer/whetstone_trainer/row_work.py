"""The work on rows that needs no other row: decode, filter, choose the side, draw, render, cut. Runs in any process."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from whetstone_api.jobs import DatasetFile, TrainingConfig
from whetstone_api.training_data import TooLong
from whetstone_api.vocabulary import Reason
from whetstone_artifacts.data.lines import Chunk

from whetstone_trainer.dataset import Row, invalid_row, rows_of
from whetstone_trainer.errors import UserError
from whetstone_trainer.failpoints import failpoint
from whetstone_trainer.preference_rows import RenderedPair, preference_of, render_pair
from whetstone_trainer.render import Rendered, Renderer, TemplateError, is_optimal
from whetstone_trainer.selection import copies, passes
from whetstone_trainer.split import Split, task_number


@dataclass(frozen=True, kw_only=True)
class Part:
    """A row as it is written.

    Args:
        rendered: Tokens and mask.
        key: The same for parts that are the same.
    """

    rendered: Rendered
    key: bytes


@dataclass(frozen=True, kw_only=True)
class WorkedRow:
    """What became of a row.

    Args:
        number: Line in the file, from 1.
        task: Digest of its task, where it says so.
        turns: How often the assistant speaks.
        calls: Whether it calls a tool.
        passes: Whether the filter lets it through; what follows is said of such rows only.
        held_out: Whether it is for the evaluation.
        times: How often an epoch learns it; of a row that is held out, 1.
        made: Parts that it was rendered to.
        truncated: Parts that lost their end.
        parts: Those within the limit of tokens.
    """

    number: int
    task: str | None
    turns: int
    calls: bool
    passes: bool
    held_out: bool = False
    times: int = 0
    made: int = 0
    truncated: int = 0
    parts: Sequence[Part] = ()


class RowWork:
    """Works on chunks of rows.

    Args:
        config: The job's configuration.
        max_length: Limit of tokens.
        seed: Seed of split and draw.
        renderer: Renders with the base model's template.
    """

    def __init__(self, config: TrainingConfig, *, max_length: int, seed: int, renderer: Renderer) -> None:
        self._config = config
        self._limit = max_length
        self._seed = seed
        self._renderer = renderer
        self._preference = preference_of(config)

    def numbers(self, place: int, chunk: Chunk) -> "array[int]":
        """Return the numbers of the tasks of the rows that pass their filter.

        Args:
            place: The dataset's place in the spec.
            chunk: Its rows.

        Raises:
            UserError: A row is wrong.
        """
        dataset = self._config.datasets[place]
        rows = rows_of(dataset, chunk, self._preference)
        return array("Q", (task_number(row, self._seed) for row in rows if passes(dataset, row)))

    def work(self, place: int, chunk: Chunk, split: Split) -> list[WorkedRow]:
        """Return what becomes of rows, in order.

        Args:
            place: The dataset's place in the spec.
            chunk: Its rows.
            split: Tells which rows are held out.

        Raises:
            UserError: A row is wrong.
        """
        failpoint("while-rendering", Path(self._config.workspace_path))
        dataset = self._config.datasets[place]
        return [self._worked(dataset, row, split) for row in rows_of(dataset, chunk, self._preference)]

    def _worked(self, dataset: DatasetFile, row: Row, split: Split) -> WorkedRow:
        calls = any("tool_calls" in message for message in row.messages)
        worked = WorkedRow(number=row.number, task=row.task, turns=row.turns, calls=calls, passes=passes(dataset, row))
        if not worked.passes:
            return worked
        held_out = split.holds_out(dataset, row)
        times = 1 if held_out else copies(dataset, row, self._seed)
        if not times:
            return worked
        parts = render_row(self._renderer, dataset, row=row, config=self._config)
        short = [self._within(part, dataset=dataset, row=row) for part in parts]
        kept = [part for part in short if part is not None]
        return replace(
            worked,
            held_out=held_out,
            times=times,
            made=len(parts),
            truncated=sum(part not in parts for part in kept),
            parts=[_part(part) for part in kept],
        )

    def _within(self, rendered: Rendered, *, dataset: DatasetFile, row: Row) -> Rendered | None:
        if rendered.longest <= self._limit:
            return rendered
        policy = self._config.preparation.too_long
        if policy is TooLong.FAIL:
            raise UserError(
                Reason.DATASET_TOO_LONG,
                f"{dataset.field}, row {row.number}: has {rendered.longest} tokens, the limit is {self._limit};"
                " shorten the row, raise spec.hyperparameters.maxLength as far as the model's context allows, or say in"
                " spec.preparation.tooLong what becomes of such rows",
            )
        return cut(rendered, self._limit) if policy is TooLong.TRUNCATE else None


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


def _part(rendered: Rendered) -> Part:
    packed = _packed(rendered)
    sides = (packed, packed.rejected) if isinstance(packed, RenderedPair) else (packed,)
    digest = blake2b(digest_size=16)
    for side in sides:
        # With the number of tokens before them: where one side ends is part of what it is.
        digest.update(f"{len(side.input_ids)} {side.spans}".encode())
        digest.update(side.input_ids)  # type: ignore[arg-type]
    return Part(rendered=packed, key=digest.digest())


def _packed(rendered: Rendered) -> Any:
    """Return a row with its tokens as the machine has numbers: other processes get them at no cost."""
    ids = array("i", rendered.input_ids)
    if isinstance(rendered, RenderedPair):
        return replace(rendered, input_ids=ids, rejected=_packed(rendered.rejected))
    return replace(rendered, input_ids=ids)
