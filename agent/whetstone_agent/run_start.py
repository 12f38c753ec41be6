"""What a run asks of its cluster before the first trial, and what it says when something stopped it."""

import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from whetstone_api.benchmark_suite import RefusedTask
from whetstone_api.jobs import BenchmarkConfig
from whetstone_api.vocabulary import Reason

from whetstone_agent.failure import RunFailure, budget_exceeded, target_changed
from whetstone_agent.harness import AbortedError
from whetstone_agent.request import Request

log = logging.getLogger(__name__)


async def prepare_cluster(request: Request, settings: dict[str, Any]) -> list[RefusedTask]:
    """Sweep what a killed runner left, and ask for trial pods in a dry run: a refusal then names itself at once.

    Returns:
        The tasks of this shard whose pods may not have what they ask for.

    Raises:
        RunFailure: `TRIALS_FORBIDDEN`, `INVALID_SPEC` or `NETWORK_NOT_ENFORCED`.
    """
    from whetstone_agent.environment.cluster import Cluster, Runner
    from whetstone_agent.environment.creation import create_pod, sweep
    from whetstone_agent.environment.errors import PodStartError, QuotaFullError, TooLargeError, TrialsForbiddenError
    from whetstone_agent.environment.manifest import TrialPod, trial_pod
    from whetstone_agent.environment.preflight import check_network
    from whetstone_agent.environment.room import tasks_too_large

    run = request.config.object.name
    swept = await sweep(run)
    if swept:
        log.info("deleted %d trial pods of an earlier runner", swept)
    options = settings["environment"]["kwargs"]

    async def ask(requests: Mapping[str, Any], limits: Mapping[str, Any]) -> None:
        probe = TrialPod(
            runner=Runner.from_environment(),
            benchmark_run=run,
            session="dry-run",
            nonce=str(os.getpid()),
            image=request.tasks[0].image,
            deadline_seconds=options["deadline_seconds"],
            requests=requests,
            limits=limits,
        )
        with suppress(QuotaFullError):  # trials will wait for room
            await create_pod(await Cluster.shared(), trial_pod(probe), dry_run=True)

    refused: list[RefusedTask] = []
    try:
        if "requests" in options:
            await ask(options["requests"], options["limits"])
        else:
            refused = await tasks_too_large(request.own_tasks, lambda asked: ask(asked, asked))
        await check_network(request.config.suite.environment, request.tasks, benchmark_run=run)
    except TrialsForbiddenError as error:
        raise _forbidden(str(error), request.config) from error
    except (PodStartError, TooLargeError) as error:
        raise RunFailure(Reason.INVALID_SPEC, f"{error}; fix spec.suite.harbor.trialResources") from error
    return refused


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
