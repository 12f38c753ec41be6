"""What a kubelet does for the operator's container, and a Deployment for its pod."""

import os
import signal
import threading

from integration.operator_process import OperatorProcess

_LOOK_SECONDS = 0.2


class Keeper:
    """Starts the operator's container again whenever it ends.

    Args:
        operator: The operator.
    """

    def __init__(self, operator: OperatorProcess) -> None:
        self._operator = operator
        self._stopped = threading.Event()
        self._turn = threading.Lock()
        self._thread = threading.Thread(target=self._keep)
        self.exits: list[int] = []
        """Exit codes so far."""

    def __enter__(self) -> "Keeper":
        try:
            self._operator.start()
        except BaseException:
            self._operator.stop()
            raise
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._operator.stop()

    def kill(self, *, pod: bool = False) -> None:
        """End the operator as kill -9 does; with its pod, another one takes its place, which nobody knows yet."""
        with self._turn:
            if self._operator.exit_code() is None:
                os.kill(self._operator.pid, signal.SIGKILL)
            if pod:
                self._operator.move_to_another_pod()

    def _keep(self) -> None:
        while not self._stopped.wait(_LOOK_SECONDS):
            with self._turn:
                code = self._operator.exit_code()
                if code is not None:
                    self.exits.append(code)
                    self._operator.launch()
