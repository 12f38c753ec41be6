"""What a run was asked to do, as digests: its recipe, and what must be equal for two runs to be compared."""

from collections.abc import Sequence
from decimal import Decimal
from importlib.metadata import version
from typing import Any, Final

from whetstone_api.benchmark_agent import SamplingSpec
from whetstone_api.benchmark_suite import EnvironmentKind, NetworkLimits, TrialEnvironment
from whetstone_api.digests import canonical_digest
from whetstone_api.jobs import BenchmarkConfig
from whetstone_api.run_artifact import Comparability

from whetstone_agent.agents.catalog import agent_identity
from whetstone_agent.tasks import AdmittedTask, mapped_images, suite_digest


def sampling_identity(sampling: SamplingSpec) -> dict[str, Any]:
    """Return the sampling with one form for equal numbers (`0.70` is `0.7`)."""
    texts = {"temperature": sampling.temperature, "topP": sampling.top_p}
    return {**{name: format(Decimal(text).normalize(), "f") for name, text in texts.items()}, "seed": sampling.seed}


NOT_ISOLATED: Final = "trials as processes of the runner, isolated from nothing"


def _isolation(environment: TrialEnvironment | None) -> str:
    process = environment is not None and environment.kind is EnvironmentKind.PROCESS
    return f", {NOT_ISOLATED}" if process else ""


def comparability(config: BenchmarkConfig, tasks: Sequence[AdmittedTask]) -> Comparability:
    """Return everything that must be equal for a comparison. Model and adapter are the treatment."""
    return Comparability(
        suite_digest=suite_digest(tasks),
        agent=canonical_digest(agent_identity(config.agent, config.agent_path)),
        sampling=canonical_digest(sampling_identity(config.sampling)),
        attempts=config.attempts,
        harness=f"harbor {version('harbor')}{_isolation(config.suite.environment)}",
        images=_images_digest(tasks),
    )


def environment_identity(environment: TrialEnvironment | None) -> dict[str, Any]:
    """Return what of the sandbox may change scores: nothing, unless it departs from the default."""
    identity = {}
    if environment is not None and environment.kind is not EnvironmentKind.POD:
        identity["environment"] = environment.kind.value
    if environment is not None and environment.network_limits is not NetworkLimits.ENFORCED:
        identity["networkLimits"] = environment.network_limits.value
    return identity


def oracle_identity(config: BenchmarkConfig) -> dict[str, Any]:
    """Return what a run asks of its tasks' own solutions; nothing where it asks nothing. Their verdicts are a result,
    and where they are kept changes nothing."""
    oracle = config.suite.oracle
    if oracle is None:
        return {}
    minimum = format(Decimal(oracle.minimum_reward).normalize(), "f")
    return {"oracle": {"minimumReward": minimum, "withoutSolution": oracle.without_solution.value}}


def recipe_digest(config: BenchmarkConfig, tasks: Sequence[AdmittedTask]) -> str:
    """Return the digest of what was asked: suite, agent, sampling, attempts and the target's content."""
    resources = config.suite.trial_resources
    images = _images_digest(tasks)
    return canonical_digest(
        {
            **environment_identity(config.suite.environment),
            "suite": suite_digest(tasks),
            "trialResources": resources.to_wire() if resources else None,
            "agent": agent_identity(config.agent, config.agent_path),
            "sampling": sampling_identity(config.sampling),
            "attempts": config.attempts,
            "target": config.adapter_digest or config.served_name,
            **({"images": images} if images else {}),
            **oracle_identity(config),
        }
    )


def _images_digest(tasks: Sequence[AdmittedTask]) -> str | None:
    """Return the digest of the images that a map replaced. A prefix names a mirror of the same: it does not count."""
    mapped = mapped_images(tasks)
    return canonical_digest(mapped) if mapped else None
