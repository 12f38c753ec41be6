"""Waits for a run's turn to measure its server.

A queue may let several runs of one server start at once. They would slow each other's trials down, so the pods of such
a run ask the operator before their first trial, for as long as it takes: nothing is measured without its word.
"""

import asyncio
import logging
import urllib.error
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from pydantic import ValidationError
from whetstone_api.jobs import RunConfig
from whetstone_api.reports import WAITING_FOR_SERVER, Outcome, ProgressReport, Turn
from whetstone_api.vocabulary import Reason
from whetstone_artifacts.reporting import Reporter

from whetstone_agent.failure import RunFailure
from whetstone_agent.operator_requests import FINAL, TOKEN_PATH, ask_operator

log = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 5.0


async def await_turn(
    config: RunConfig,
    reporter: Reporter,
    *,
    token_path: Path = TOKEN_PATH,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Return once it is the run's turn.

    Args:
        config: Names the endpoint.
        reporter: Gets the progress.
        token_path: File of the projected token.
        pause: Waits between two tries, by seconds.

    Raises:
        RunFailure: The operator does not speak with this pod; another one may fare better.
    """
    if config.turn_url is None:
        return
    told = False
    while not await _granted(config.turn_url, token_path):
        if not told:
            reporter.send(ProgressReport(phase=WAITING_FOR_SERVER))
        told = True
        await pause(_PAUSE_SECONDS)


async def _granted(url: str, token_path: Path) -> bool:
    try:
        turn = Turn.model_validate_json(await asyncio.to_thread(ask_operator, url, b"{}", token_path))
    except urllib.error.HTTPError as error:
        if error.code in FINAL:
            told = f"the operator does not tell this pod whether it is the run's turn: HTTP {error.code}"
            raise RunFailure(Reason.SERVER_HELD, told, outcome=Outcome.RETRY) from error
        log.warning("the operator does not say whether it is the run's turn: HTTP %d", error.code)
        return False
    except (OSError, ValidationError) as error:
        log.warning("the operator does not say whether it is the run's turn: %s", error)
        return False
    if not turn.granted:
        log.info("the server is measured by BenchmarkRun %s; this run waits for its turn", ", ".join(turn.held_by))
    return turn.granted
