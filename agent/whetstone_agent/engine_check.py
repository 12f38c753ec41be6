"""Asks the operator whether the engines are still those that a run began with.

The answer is published with the results, so that whoever adopts them does not take a spoiled run for a good one.
"""

import json
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pydantic import ValidationError
from whetstone_api.benchmark_target import EngineCheck
from whetstone_api.jobs import RunConfig
from whetstone_api.vocabulary import REPORT_TOKEN_PATH

log = logging.getLogger(__name__)

_TRIES: Final = 6
_PAUSE_SECONDS: Final = 5.0
_TIMEOUT_SECONDS: Final = 10.0
_FINAL: Final = frozenset({400, 401, 403, 404})
"""Answers that another try does not change."""


def check_engines(
    config: RunConfig,
    *,
    token_path: str | Path = REPORT_TOKEN_PATH,
    pause: Callable[[float], None] = time.sleep,
) -> EngineCheck | None:
    """Return the operator's answer; None where there is nothing to ask, or no answer: the run goes on without.

    Args:
        config: Names the endpoint and the engines at the start.
        token_path: File of the projected token.
        pause: Waits between two tries, by seconds.
    """
    if config.engine is None or config.engine_check_url is None:
        return None
    body = json.dumps(config.engine.to_wire()).encode()
    for number in range(_TRIES):
        if number:
            pause(_PAUSE_SECONDS)
        try:
            return _ask(config.engine_check_url, body, Path(token_path))
        except urllib.error.HTTPError as error:
            log.warning("the operator does not say whether the engines are the same: HTTP %d", error.code)
            if error.code in _FINAL:
                return None
        except (OSError, ValidationError) as error:
            log.warning("the operator does not say whether the engines are the same: %s", error)
    return None


def _ask(url: str, body: bytes, token_path: Path) -> EngineCheck:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token_path.read_text().strip()}"}
    request = urllib.request.Request(url, data=body, headers=headers, method="POST")  # noqa: S310 - operator's address
    with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310 - as above
        return EngineCheck.model_validate_json(answer.read())
