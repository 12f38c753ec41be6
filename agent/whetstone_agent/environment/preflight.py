"""What must be true of the cluster before the first trial: nothing left behind, and networks that hold."""

import logging
from collections.abc import Sequence
from typing import Final

from whetstone_api.benchmark_suite import EnvironmentKind, NetworkLimits, TrialEnvironment
from whetstone_api.vocabulary import Reason

from whetstone_agent.environment.cluster import Cluster, Runner
from whetstone_agent.environment.enforcement import Enforcement, measure_enforcement
from whetstone_agent.environment.network import limits_network
from whetstone_agent.failure import RunFailure
from whetstone_agent.tasks import AdmittedTask

log = logging.getLogger(__name__)

_SHOWN: Final = 5


async def check_network(
    environment: TrialEnvironment | None, tasks: Sequence[AdmittedTask], *, benchmark_run: str
) -> None:
    """Measure whether the cluster enforces NetworkPolicies, if any task needs that.

    Raises:
        RunFailure: `NETWORK_NOT_ENFORCED`: it does not, and the run does not say that it may go on so.
        TrialsForbiddenError: The runner may not make pods or policies.
    """
    limited = _limited(tasks)
    if not limited:
        return
    cluster, runner = await Cluster.shared(), Runner.from_environment()
    image = (await cluster.runner_pod(runner)).image
    found = Enforcement.UNKNOWN
    if image is not None:
        found = await measure_enforcement(cluster, runner, benchmark_run=benchmark_run, image=image)
    judge_network(environment, limited, found)


def judge_network(environment: TrialEnvironment | None, limited: Sequence[str], found: Enforcement) -> None:
    """Refuse a run whose network limits do not hold, or log it where the run allows that.

    Args:
        environment: What the run says.
        limited: Names of the tasks that ask for a limited network.
        found: What was measured.

    Raises:
        RunFailure: `NETWORK_NOT_ENFORCED`.
    """
    if found is Enforcement.ENFORCED:
        return
    why = {
        Enforcement.OPEN: "a connection that a NetworkPolicy forbids came through: the network plugin enforces none",
        Enforcement.UNKNOWN: "whether the cluster enforces NetworkPolicies could not be measured",
    }[found]
    words = f"{_asking(limited)}, but {why}"
    if environment is not None and environment.network_limits is NetworkLimits.BEST_EFFORT:
        log.warning("%s; spec.suite.harbor.environment.networkLimits is BestEffort, so the run goes on", words)
        return
    raise RunFailure(
        Reason.NETWORK_NOT_ENFORCED,
        f"{words}; use a network plugin that does, exclude the tasks, or set spec.suite.harbor.environment"
        ".networkLimits to BestEffort",
    )


def refuse_unlimited(environment: TrialEnvironment | None, tasks: Sequence[AdmittedTask]) -> None:
    """Refuse tasks that ask for a limited network in a run whose trials are processes: they have the machine's.

    Raises:
        RunFailure: `NETWORK_NOT_ENFORCED`.
    """
    if environment is None or environment.kind is not EnvironmentKind.PROCESS:
        return
    limited = _limited(tasks)
    if limited:
        raise RunFailure(
            Reason.NETWORK_NOT_ENFORCED,
            f"{_asking(limited)}, and trials as processes have the"
            " runner's network; exclude the tasks, or set spec.suite.harbor.environment.kind to Pod",
        )


def _limited(tasks: Sequence[AdmittedTask]) -> list[str]:
    return [task.name for task in tasks if limits_network(task.path)]


def _asking(limited: Sequence[str]) -> str:
    names = ", ".join(limited[:_SHOWN]) + (", …" if len(limited) > _SHOWN else "")
    return f"{len(limited)} tasks ask for no network or an allowlist ({names})"
