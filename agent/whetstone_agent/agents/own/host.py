"""`python -m whetstone_agent.agents.own.host`: the container of a user's agent. One process for each trial."""

import argparse
import logging
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

log = logging.getLogger(__name__)


def serve(place: Path, code: Path) -> None:
    """Start a worker for every connection, until SIGTERM.

    Args:
        place: Where the socket is made.
        code: Folder of the user's modules.
    """
    # The first process of a container ignores it unless told otherwise, and its pod then lasts until its grace is over.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    place.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(place))
        listener.listen(256)
        log.info("waiting for trials at %s", place)
        while True:
            connection, _ = listener.accept()
            with connection:
                worker = _start(connection, code)
            threading.Thread(target=worker.wait, daemon=True).start()


def _start(connection: socket.socket, code: Path) -> subprocess.Popen[bytes]:
    handle = connection.fileno()
    command = [sys.executable, "-m", "whetstone_agent.agents.own.worker", "--socket", str(handle), "--code", str(code)]
    return subprocess.Popen(command, pass_fds=[handle], stdin=subprocess.DEVNULL)  # noqa: S603 - our own module


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="whetstone_agent.agents.own.host")
    parser.add_argument("--socket", type=Path, required=True, help="where the socket is made")
    parser.add_argument("--code", type=Path, required=True, help="folder of the user's modules")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    serve(given.socket, given.code)
