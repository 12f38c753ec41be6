"""Bounds on the data: too little, or too much of it too long, ends the job before it asks for an accelerator."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal

from whetstone_api.jobs import TrainingConfig
from whetstone_api.vocabulary import Reason

from whetstone_trainer.errors import UserError
from whetstone_trainer.prepared import DatasetCounts


@dataclass(kw_only=True)
class Tally:
    """Where rows went, as `DatasetCounts` has it, while they are counted."""

    read: int = 0
    filtered: int = 0
    undrawn: int = 0
    dropped: int = 0
    duplicates: int = 0
    learned: int = 0
    held_out: int = 0
    truncated: int = 0

    @property
    def rendered(self) -> int:
        """Rows that were rendered, of which a conversation may have become several."""
        return self.dropped + self.duplicates + self.learned + self.held_out


def total_of(counts: Sequence[DatasetCounts]) -> Tally:
    """Return the sums over all datasets."""
    fields = asdict(Tally())
    return Tally(**{name: sum(getattr(one, name) for one in counts) for name in fields})


def require_bounds(config: TrainingConfig, counts: Sequence[DatasetCounts]) -> None:
    """Check what is left of the data.

    Args:
        config: The job's configuration.
        counts: Where the rows of each dataset went.

    Raises:
        UserError: `DATASET_TOO_LONG` or `DATASET_TOO_SMALL`, with where the rows went, and the fix.
    """
    total = total_of(counts)
    asked = config.preparation
    used, too_long = total.rendered, total.dropped + total.truncated
    if too_long > Decimal(asked.maximum_too_long) * used:
        raise UserError(
            Reason.DATASET_TOO_LONG,
            f"spec.datasets: {too_long} of {used} rows are longer than the limit of tokens, and"
            f" spec.preparation.maximumTooLong is {asked.maximum_too_long}; raise spec.hyperparameters.maxLength,"
            " shorten the rows, or allow more of them",
        )
    if total.learned < asked.minimum_rows:
        raise UserError(
            Reason.DATASET_TOO_SMALL,
            f"spec.datasets: {total.learned} rows are left to learn from, {_ways(total)};"
            f" spec.preparation.minimumRows is {asked.minimum_rows}: give more rows, or ask for fewer",
        )
    if config.evaluation is not None and not total.held_out:
        raise UserError(
            Reason.DATASET_TOO_SMALL,
            f"spec.evaluation: no row is left to evaluate on, {_ways(total)}; give rows that differ from those that"
            " are learned",
        )


def _ways(total: Tally) -> str:
    parts = {
        "filtered": total.filtered,
        "not drawn by a weight below 1": total.undrawn,
        "too long": total.dropped,
        "duplicates": total.duplicates,
        "held out": total.held_out,
    }
    gone = ", ".join(f"{number} {way}" for way, number in parts.items() if number)
    return f"of {total.read} read ({gone or 'none left out'})"
