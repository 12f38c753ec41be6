"""Takes the place of a trainer in its container: it reports, shows a series, meets its neighbour, and learns nothing.

It lies in a volume as the package that the benchmark's image starts, which is a tenth of the trainer's.
"""

import json
import os
import signal
import socket
import sys
import time
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path
from threading import Thread
from typing import Any

from whetstone_api.jobs import METRICS_PORT
from whetstone_api.reports import Outcome, ProgressReport, TerminationReport
from whetstone_api.training_distributed import NODE_VARIABLE, RENDEZVOUS_PORT, RENDEZVOUS_VARIABLE
from whetstone_api.vocabulary import CONFIG_PATH
from whetstone_artifacts.reporting import Reporter, write_termination

MET = 2
"""Step that a pair of pods reports once they have met."""
_ROWS = {"rows": 3, "tokens": 30, "lossTokens": 10, "longest": 12, "duplicates": 0}
_ROWS |= dict.fromkeys(("dropped", "filtered", "truncated", "undrawn"), 0)
_PACKAGE = "whetstone_agent"
_FOLDER = f"/home/whetstone/{_PACKAGE}"


def config_map() -> dict[str, Any]:
    """Return the ConfigMap `trainer` with this program."""
    data = {"__init__.py": "", "__main__.py": Path(__file__).read_text()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "trainer"}, "data": data}


def fields(image: str) -> dict[str, Any]:
    """Return what lets a LoRATrainingJob run this program.

    Args:
        image: The benchmark's.
    """
    volume = {"name": "program", "configMap": {"name": "trainer"}}
    mount = {"name": "program", "mountPath": _FOLDER}
    overlay = {"volumes": [volume], "containers": [{"name": "main", "volumeMounts": [mount]}]}
    return {"image": image, "podTemplate": {"spec": overlay}}


def prepare() -> None:
    """End well, with the figures of a dataset."""
    result = {"dataset": _ROWS}
    write_termination(TerminationReport(outcome=Outcome.SUCCEEDED, reason="Succeeded", message="done", result=result))


def train() -> None:
    """Report a step, and another one when the other pod is there, and go on until told to end."""
    config = json.loads(Path(CONFIG_PATH).read_text())
    Thread(target=HTTPServer(("", METRICS_PORT), SimpleHTTPRequestHandler).serve_forever, daemon=True).start()
    if os.environ[NODE_VARIABLE] == "0":
        reporter = Reporter(url=config["reportUrl"])
        reporter.send(ProgressReport(phase="Train", step=1, max_steps=MET), at_once=True)
        with socket.create_server(("", RENDEZVOUS_PORT)) as server:
            while True:
                server.accept()[0].close()
                reporter.send(ProgressReport(phase="Train", step=MET, max_steps=MET), at_once=True)
    while True:
        try:
            socket.create_connection((os.environ[RENDEZVOUS_VARIABLE], RENDEZVOUS_PORT), timeout=5).close()
        except OSError as error:
            print(f"not met: {error}", flush=True)  # noqa: T201 - it is the pod's log
        time.sleep(1)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    {"prepare": prepare, "train": train}[sys.argv[1]]()
