"""Values that tests plant in Secrets, and what finds them again wherever they must not be."""

import base64
import hashlib
from collections.abc import Iterable, Mapping
from urllib.parse import quote


def canary(name: str) -> str:
    """Return a value that is found nowhere by chance."""
    return f"canary-{hashlib.sha256(name.encode()).hexdigest()[:24]}"


def seen(canaries: Mapping[str, str], texts: Mapping[str, str]) -> list[str]:
    """Return which value lies where, as it is or encoded.

    Args:
        canaries: Value by name.
        texts: What is searched, by what it is called.
    """
    return sorted(
        f"{name} in {place}"
        for name, value in canaries.items()
        for place, text in texts.items()
        if any(form in text for form in _forms(value))
    )


def _forms(value: str) -> Iterable[str]:
    encoded = base64.b64encode(value.encode()).decode()
    # In the middle of something encoded, the first and the last characters are others.
    inner = [base64.b64encode(value[skip:].encode()).decode().rstrip("=")[:-2] for skip in range(3)]
    return {value, quote(value, safe=""), encoded, *inner}
