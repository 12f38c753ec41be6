"""The hub's library, which this program keeps offline, so that it never asks about local folders."""

from collections.abc import Iterator
from contextlib import contextmanager

from whetstone_api.source import Scheme


@contextmanager
def reaching(scheme: Scheme) -> Iterator[None]:
    """Let the hub's library connect for a while, where it is what reaches a place."""
    if scheme is not Scheme.HUB:
        yield
        return
    from huggingface_hub import constants

    before, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, False
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
