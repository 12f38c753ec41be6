"""Asks the operator something that only it knows, as a pod of the run."""

import urllib.request
from pathlib import Path
from typing import Final

from whetstone_api.vocabulary import REPORT_TOKEN_PATH

TOKEN_PATH: Final = Path(REPORT_TOKEN_PATH)
FINAL: Final = frozenset({400, 401, 403, 404})
"""Answers that another try does not change."""
_TIMEOUT_SECONDS: Final = 10.0


def ask_operator(url: str, body: bytes, token_path: Path) -> bytes:
    """Return the operator's answer.

    Args:
        url: Where to ask.
        body: JSON.
        token_path: File of the projected token.

    Raises:
        urllib.error.HTTPError: The operator refuses.
        OSError: There is no answer.
    """
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token_path.read_text().strip()}"}
    request = urllib.request.Request(url, data=body, headers=headers, method="POST")  # noqa: S310 - operator's address
    with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310 - as above
        found: bytes = answer.read()
    return found
