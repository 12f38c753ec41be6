"""The key that a runner sends to the server that it measures."""

import os

from whetstone_api.access import API_KEY_VARIABLE

NO_KEY = "none"
"""Sent where the server asks for no key: OpenAI's client does without one not at all."""


def api_key() -> str:
    """Return the key that the operator gave this runner."""
    return os.environ.get(API_KEY_VARIABLE) or NO_KEY


def authorization() -> dict[str, str]:
    """Return the request header that carries the key."""
    return {"Authorization": f"Bearer {api_key()}"}
