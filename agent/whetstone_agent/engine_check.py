"""Asks the operator whether the engines are still those that a run began with.

The answer is published with the results, so that whoever adopts them does not take a spoiled run for a good one.
"""

import json
import logging
import time
import urllib.error
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pydantic import ValidationError
from whetstone_api.benchmark_target import EngineCheck
from whetstone_api.jobs import RunConfig

from whetstone_agent.operator_requests import FINAL, TOKEN_PATH, ask_operator

log = logging.getLogger(__name__)

_TRIES: Final = 6
_PAUSE_SECONDS: Final = 5.0


def check_engines(
    config: RunConfig,
    *,
    token_path: Path = TOKEN_PATH,
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
            return EngineCheck.model_validate_json(ask_operator(config.engine_check_url, body, token_path))
        except urllib.error.HTTPError as error:
            log.warning("the operator does not say whether the engines are the same: HTTP %d", error.code)
            if error.code in FINAL:
                return None
        except (OSError, ValidationError) as error:
            log.warning("the operator does not say whether the engines are the same: %s", error)
    return None
