"""Starts the operator: `python -m whetstone_operator`."""

import asyncio
import gc
import logging
import os
import sys

import kopf

from whetstone_operator.assembly import Operator
from whetstone_operator.controllers.benchmarkrun import reconcile as reconcile_benchmark_run
from whetstone_operator.controllers.loratrainingjob import reconcile as reconcile_training_job
from whetstone_operator.controllers.modelserver import reconcile as reconcile_model_server
from whetstone_operator.kinds import BENCHMARK_RUN, MODEL_SERVER, TRAINING_JOB
from whetstone_operator.runtime.definitions import DefinitionsGoneError
from whetstone_operator.runtime.leadership import LeadershipLostError
from whetstone_operator.settings import Settings, SettingsError

CONTROLLERS = {
    MODEL_SERVER.plural: reconcile_model_server,
    TRAINING_JOB.plural: reconcile_training_job,
    BENCHMARK_RUN.plural: reconcile_benchmark_run,
}
EXIT_CONFIGURATION = 78
"""`EX_CONFIG` of sysexits.h."""
EXIT_STARTED_AGAIN = 1
"""The container is started again: it stands by, or waits for the definitions of our kinds."""


def main() -> int:
    """Run the operator until SIGTERM; return the process's exit code."""
    try:
        settings = Settings.from_environment()
    except SettingsError as error:
        sys.stderr.write(f"whetstone-operator: {error}\n")
        return EXIT_CONFIGURATION
    kopf.configure(log_format=kopf.LogFormat.JSON)
    level = os.environ.get("WHETSTONE_LOG_LEVEL", "INFO").upper()
    logging.getLogger().setLevel(level)
    for noisy in ("kopf", "aiohttp.access"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    # What was imported stays: without this, each of the many collections of a start looks through all of it.
    gc.freeze()
    try:
        asyncio.run(Operator(settings, CONTROLLERS).run())
    except (LeadershipLostError, DefinitionsGoneError) as error:
        logging.getLogger(__name__).error("stopped: %s", error)  # noqa: TRY400 - no fault of this code
        return EXIT_STARTED_AGAIN
    return 0


if __name__ == "__main__":
    sys.exit(main())
