"""The preStop hook of engine and sidecar: `python3 -m whetstone_guard.leave --least 8 --quiet 6 --limit 68`.

It tells the guard that the pod is going, and ends, so that the containers get SIGTERM, once no client can be using the
pod. SIGTERM must not come earlier: an answer that began before the drain leaves its connection open, and vLLM refuses
the next request on it as soon as it has the signal.
"""

import argparse
import http.client
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from . import guard
from .guard import DRAIN_PATH, TOKEN_FILE, TOKEN_FILE_VARIABLE

TOKEN_HEADER = guard.TOKEN_HEADER.decode()
PORT = 8000
POLL_SECONDS = 0.5
ANSWER_SECONDS = 5.0


def leave(
    ask: Callable[[], float],
    *,
    least: float,
    quiet: float,
    limit: float,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Return when the pod may end.

    Args:
        ask: Tells the guard that the pod is going; gives the seconds since its last answer ended.
        least: Shortest wait, seconds: until no new connection comes.
        quiet: Seconds without a request after which the engine has closed every connection.
        limit: Longest wait, seconds.
        clock: Monotonic seconds.
        pause: Waits for so many seconds.
    """
    begun = clock()
    while (waited := clock() - begun) < limit:
        try:
            quiet_for = ask()
        except ConnectionRefusedError:
            return  # An engine that is gone, or not there yet, has no clients.
        except (OSError, http.client.HTTPException, ValueError, KeyError):
            quiet_for = 0.0
        if waited >= least and quiet_for >= quiet:
            return
        pause(min(POLL_SECONDS, limit - waited))


def ask_guard(port: int, token_file: Path) -> float:
    """Tell the guard of this pod that the pod is going; return for how many seconds it has served nobody.

    Raises:
        OSError: The engine does not listen, or not answer.
        ValueError: It does not answer in JSON.
        KeyError: It refuses.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS)
    try:
        connection.request("POST", DRAIN_PATH, headers={TOKEN_HEADER: token_file.read_text().strip()})
        answer = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    return float(answer["quietSeconds"])


def main(arguments: list[str] | None = None) -> None:
    """Wait as the arguments say."""
    parser = argparse.ArgumentParser(prog="whetstone_guard.leave", description=__doc__)
    for name in ("least", "quiet", "limit"):
        parser.add_argument(f"--{name}", type=float, required=True, metavar="SECONDS")
    parser.add_argument("--port", type=int, default=PORT)
    given = parser.parse_args(arguments)
    token_file = Path(os.environ.get(TOKEN_FILE_VARIABLE, TOKEN_FILE))
    leave(lambda: ask_guard(given.port, token_file), least=given.least, quiet=given.quiet, limit=given.limit)


if __name__ == "__main__":
    main()
