"""Which split a row belongs to: by its task, so that no task is both learned and asked. Pure."""

import hashlib
from collections.abc import Mapping
from typing import Final

from whetstone_artifacts.data.example import Example

REST: Final = "train"
"""The split of all rows that no other split takes."""
_BYTES: Final = 8


def split_of(example: Example, shares: Mapping[str, float], seed: int) -> str:
    """Return the split of a row.

    It depends on nothing but its task and the seed, so that a task stays where it is when rows are added. A row
    without a task goes by its question.

    Args:
        example: The row.
        shares: Share of the tasks, from 0 to 1, that each split besides `REST` takes, on average.
        seed: Another seed is another division.
    """
    place = share_of(group_of(example), seed)
    for name, share in shares.items():
        if place < share:
            return name
        place -= share
    return REST


def group_of(example: Example) -> bytes:
    """Return what rows that belong together share: their task, or their question where they name none."""
    return b"task:" + example.task.encode(errors="surrogatepass") if example.task else b"asks:" + example.question


def share_of(key: bytes, seed: int) -> float:
    """Return a number from 0 to below 1 that looks drawn, and is always the same for a key and a seed."""
    digest = hashlib.blake2b(key, digest_size=_BYTES, key=str(seed).encode()).digest()
    return int.from_bytes(digest, "big") / (1 << 8 * _BYTES)
