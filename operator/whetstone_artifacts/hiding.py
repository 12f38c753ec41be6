"""Keeps secrets out of what is written down: servers repeat what they refuse."""

from collections.abc import Iterable
from typing import Final

LEAST_HIDDEN: Final = 6
"""Characters; a shorter secret would be found by chance in any word."""


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return a text with stars in place of each secret that is long enough to be known again."""
    for secret in secrets:
        text = text.replace(secret, "***") if len(secret) >= LEAST_HIDDEN else text
    return text
