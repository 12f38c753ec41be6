"""The two digests of Whetstone: what was asked (recipe) and what came out (content)."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

VERSION_DIGITS = 8


def canonical_digest(value: Any) -> str:
    """Return `sha256:…` of a JSON value in canonical form (sorted keys, no spaces, UTF-8).

    Args:
        value: Any JSON value without floats; write decimals as text, so that 2e-4 has one form.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def content_digest(files: Mapping[str, str]) -> str:
    """Return the content digest of a folder.

    Args:
        files: SHA-256 in hex of each file, by its path relative to the folder.
    """
    return canonical_digest(dict(files))


def versioned_name(name: str, digest: str) -> str:
    """Return the immutable served name of an adapter version, `name--<8 hex of its digest>`."""
    return f"{name}--{digest.removeprefix('sha256:')[:VERSION_DIGITS]}"
