"""Which rows are held out for the evaluation.

Every task gets a number from its name and the seed, and the tasks with the lowest numbers are held out until they have
the share of rows that is asked. So no task is on both sides, the same data and seed give the same split, and a row
more changes the side of few others. A row that names no task is a task of its own, and pairs with one prompt are
one. Holds 8 bytes a row.
"""

from array import array
from decimal import Decimal

from whetstone_api.jobs import DatasetFile, TrainingConfig
from whetstone_api.vocabulary import Reason

from whetstone_trainer.dataset import Row
from whetstone_trainer.errors import UserError
from whetstone_trainer.figures import nearest_ranks
from whetstone_trainer.selection import number_of


class Split:
    """Tells which rows are held out.

    Args:
        seed: Seed of the split.
        dataset: Name of the dataset that is held out as a whole.
        threshold: Rows whose task's number is at most this are held out; None for none.
    """

    def __init__(self, seed: int, *, dataset: str | None = None, threshold: int | None = None) -> None:
        self._seed = seed
        self._dataset = dataset
        self._threshold = threshold

    def holds_out(self, dataset: DatasetFile, row: Row) -> bool:
        """Return whether a row is for the evaluation."""
        if self._threshold is not None:
            return task_number(row, self._seed) <= self._threshold
        return dataset.name == self._dataset


def task_number(row: Row, seed: int) -> int:
    """Return the number of a row's task, spread evenly from 0 to 2^64 - 1."""
    return number_of(
        f"task {row.task}" if row.task else f"row {(row.pair.prompt if row.pair else row.messages)!r}", seed
    )


def share_of(config: TrainingConfig) -> Decimal | None:
    """Return the share of rows that is held out by their tasks' numbers; None where none is."""
    asked = config.evaluation
    return None if asked is None or asked.share is None else Decimal(asked.share)


def split_by_dataset(config: TrainingConfig, seed: int) -> Split:
    """Return the split of a job that holds out a dataset, or nothing."""
    return Split(seed, dataset=config.evaluation.dataset if config.evaluation else None)


def split_by_numbers(numbers: "array[int]", share: Decimal, seed: int) -> Split:
    """Decide which tasks are held out.

    Args:
        numbers: The `task_number` of each row that is used.
        share: Share of the rows to hold out.
        seed: Seed of the split.

    Raises:
        UserError: `INVALID_SPEC` when a side would be empty, `DATASET_EMPTY` without rows.
    """
    if not numbers:
        raise UserError(Reason.DATASET_EMPTY, "spec.datasets: the filters leave no row; loosen them")
    threshold, last = nearest_ranks(numbers, (share, Decimal(1)))
    if threshold == last:
        raise UserError(
            Reason.INVALID_SPEC,
            f"spec.evaluation.share is {share}: it would hold out all {len(numbers)} rows, since whole tasks are held"
            " out and the rows come from too few; lower it, or name a dataset for the evaluation",
        )
    return Split(seed, threshold=threshold)
