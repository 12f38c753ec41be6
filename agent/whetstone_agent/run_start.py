"""What a run asks of its cluster before the first trial, and what it says when something stopped it."""

import logging
import os
from contextlib import suppress
from typing import Any

from whetstone_api.jobs import BenchmarkConfig
from whetstone_api.vocabulary import Reason

from whetstone_agent.failure import RunFailure, budget_exceeded, target_changed
from whetstone_agent.harness import AbortedError
from whetstone_agent.request import Request

log = logging.getLogger(__name__)


async def prepare_cluster(request: Request, settings: dict[str, Any]) -> None:
    """Sweep what a killed runner left, and ask for a trial pod in a dry run: a refusal then names itself at once."""
    from whetstone_agent.environment.cluster import Cluster, Runner
    from whetstone_agent.environment.creation import create_pod, sweep
    from whetstone_agent.environment.errors import PodStartError, QuotaFullError, TrialsForbiddenError
    from whetstone_agent.environment.manifest import TrialPod, trial_pod
    from whetstone_agent.environment.preflight import check_network

    run = request.config.object.name
    swept = await sweep(run)
    if swept:
        log.info("deleted %d trial pods of an earlier runner", swept)
    options = settings["environment"]["kwargs"]
    probe = TrialPod(
        runner=Runner.from_environment(),
        benchmark_run=run,
        session="dry-run",
        nonce=str(os.getpid()),
        image=request.tasks[0].image,
        deadline_seconds=options["deadline_seconds"],
        requests=options.get("requests", {}),
        limits=options.get("limits", {}),
    )
    try:
        with suppress(QuotaFullError):  # trials will wait for room
            await create_pod(await Cluster.shared(), trial_pod(probe), dry_run=True)
        await check_network(request.config.suite.environment, request.tasks, benchmark_run=run)
    except TrialsForbiddenError as error:
        raise _forbidden(str(error), request.config) from error
    except PodStartError as error:
        raise RunFailure(Reason.INVALID_SPEC, f"{error}; fix spec.suite.harbor.trialResources") from error


def aborted(error: AbortedError, config: BenchmarkConfig) -> RunFailure:
    """Return what the operator is told of an error that ended all trials."""
    if error.error == "TrialsForbiddenError":
        return _forbidden(error.message, config)
    if error.error == "RunBudgetExceededError":
        return budget_exceeded(error.message)
    return target_changed(error.message)


def _forbidden(answer: str, config: BenchmarkConfig) -> RunFailure:
    return RunFailure(
        Reason.TRIALS_FORBIDDEN,
        f"namespace {config.object.namespace!r} does not let the runner create trial pods: {answer}; allow pod security"
        " level baseline there, and list the namespace in the chart's value servedNamespaces",
    )
