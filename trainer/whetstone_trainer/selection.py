"""Which rows of a dataset are used, and how often. Pure; the same data and seed always give the same rows."""

from decimal import Decimal
from hashlib import blake2b

from whetstone_api.jobs import DatasetFile

from whetstone_trainer.dataset import Row, invalid_row

_NUMBERS = 2**64


def number_of(text: str, seed: int) -> int:
    """Return the number of a text under a seed, spread evenly from 0 to 2^64 - 1."""
    return int.from_bytes(blake2b(f"{seed} {text}".encode(errors="surrogatepass"), digest_size=8).digest())


def passes(dataset: DatasetFile, row: Row) -> bool:
    """Return whether a row passes the filter of its dataset.

    Raises:
        UserError: `DATASET_INVALID` for a row that does not say what the filter asks about.
    """
    asked = dataset.filter
    if asked is None:
        return True
    if asked.maximum_turns is not None and row.turns > asked.maximum_turns:
        return False
    if asked.minimum_reward is None:
        return True
    if row.reward is None:
        raise invalid_row(
            dataset,
            row.number,
            "has neither a number `reward` nor true or false as `success`, which filter.minimumReward asks about; add"
            " one, or take the filter away",
        )
    return row.reward >= float(asked.minimum_reward)


def copies(dataset: DatasetFile, row: Row, seed: int) -> int:
    """Return how often an epoch learns a row: the weight's whole part, and once more for its fraction of the rows."""
    weight = Decimal(dataset.weight or "1")
    whole = int(weight)
    drawn = number_of(f"draw {row.messages!r}", seed) < (weight - whole) * _NUMBERS
    return whole + drawn
