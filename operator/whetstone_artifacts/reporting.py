"""How a Job's program speaks to the operator: progress by HTTP, the outcome by the termination message."""

import logging
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

from whetstone_api.reports import ProgressReport, TerminationReport
from whetstone_api.vocabulary import REPORT_TOKEN_PATH, TERMINATION_PATH

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 2.0
TIMEOUT_SECONDS = 5.0


class Reporter:
    """Sends progress in a thread of its own: the caller never waits and never fails for it.

    When reports come faster than they may be sent, only the newest is; one that says `at_once` does not wait.

    Args:
        url: The operator's endpoint for the object.
        token_path: File of the projected token; read for every request, because the kubelet renews it.
        interval_seconds: Shortest time between two requests.
    """

    def __init__(
        self, *, url: str, token_path: str | Path = REPORT_TOKEN_PATH, interval_seconds: float = INTERVAL_SECONDS
    ) -> None:
        self._url = url
        self._token_path = Path(token_path)
        self._interval = interval_seconds
        self._pending: ProgressReport | None = None
        self._hurry = False
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="reporter", daemon=True)
        self._thread.start()

    def send(self, report: ProgressReport, *, at_once: bool = False) -> None:
        """Send a report soon. Never raises, never blocks.

        Args:
            report: What to send.
            at_once: Whether somebody waits for it: the interval does not hold it back.
        """
        with self._changed:
            self._pending = report
            self._hurry = self._hurry or at_once
            self._changed.notify()

    def close(self, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        """Send what is pending and end the thread, waiting at most `timeout_seconds`."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        next_at = 0.0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending is not None or self._closed)
                while not (self._closed or self._hurry) and (rest := next_at - time.monotonic()) > 0:
                    self._changed.wait(rest)
                report, self._pending, self._hurry = self._pending, None, False
                closed = self._closed
            if report is not None:
                self._post(report)
                next_at = time.monotonic() + self._interval
            if closed:
                return

    def _post(self, report: ProgressReport) -> None:
        try:
            request = urllib.request.Request(  # noqa: S310 - the operator renders the address
                self._url,
                data=report.to_json().encode(),
                headers={
                    "Content-Type": "application/json",
                    "Authorization": f"Bearer {self._token_path.read_text().strip()}",
                },
                method="POST",
            )
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS):  # noqa: S310 - as above
                pass
        except (OSError, ValueError, urllib.error.URLError) as error:
            log.info("report to %s failed and is dropped: %s", self._url, error)


def write_termination(report: TerminationReport, path: str | Path = TERMINATION_PATH) -> None:
    """Leave the outcome for the kubelet; a path that cannot be written (outside a pod) is logged, not raised."""
    try:
        Path(path).write_text(report.to_termination_message())
    except OSError as error:
        log.warning("termination message not written to %s: %s", path, error)
