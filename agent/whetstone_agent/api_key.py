"""The key that a runner sends to the server that it measures, and what keeps keys out of what is written."""

import os

from whetstone_api.access import API_KEY_VARIABLE
from whetstone_api.benchmark_judge import JUDGE_KEY_VARIABLE
from whetstone_api.benchmark_tooluse import KEY_VARIABLES
from whetstone_artifacts.hiding import without_secrets

NO_KEY = "none"
"""Sent where the server asks for no key: OpenAI's client does without one not at all."""


def api_key() -> str:
    """Return the key that the operator gave this runner."""
    return os.environ.get(API_KEY_VARIABLE) or NO_KEY


def authorization() -> dict[str, str]:
    """Return the request header that carries the key."""
    return {"Authorization": f"Bearer {api_key()}"}


def without_keys(answer: str) -> str:
    """Return the words of a server without the runner's keys: some repeat what they refuse, and we write it down."""
    names = (API_KEY_VARIABLE, JUDGE_KEY_VARIABLE, *KEY_VARIABLES)
    return without_secrets(answer, (os.environ.get(name, "") for name in names))
