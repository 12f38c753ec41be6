"""What a run with a `toolUse` suite was asked to do, as digests."""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Final

from whetstone_api.benchmark_tooluse import ExpertMode, ExpertSpec, ScorerKind, ToolUseSuite
from whetstone_api.digests import canonical_digest
from whetstone_api.jobs import ToolUseConfig
from whetstone_api.model_endpoint import ModelEndpoint
from whetstone_api.run_artifact import Comparability, ToolUseComparability

from whetstone_agent.recipe import sampling_identity
from whetstone_agent.tasks import ScoredTask, suite_digest
from whetstone_agent.tooluse.judges import PROMPTS, Matter
from whetstone_agent.tooluse.world import World

GYM: Final = "1"
"""Raised with every change of the environment that may change scores."""
MAX_TOKENS: Final = 1024
"""Tokens of one reply at most, where the spec does not say."""


def comparability(config: ToolUseConfig, tasks: Sequence[ScoredTask], world: World) -> Comparability:
    """Return everything that must be equal for a comparison. Model and adapter are the treatment."""
    suite = config.tool_use
    return Comparability(
        suite_digest=suite_digest(tasks),
        agent=canonical_digest(_agent(config)),
        sampling=canonical_digest(sampling_identity(config.sampling)),
        attempts=config.attempts,
        harness=f"tool-use gym {GYM}, gymnasium {version('gymnasium')}",
        tool_use=ToolUseComparability(
            environment=world.digest,
            steps=canonical_digest(
                {
                    "horizon": suite.horizon,
                    "repeatedActions": suite.repeated_actions,
                    "observationCharacters": suite.observation_characters,
                }
            ),
            tools=canonical_digest(_tools(suite)),
            protocol=str(suite.protocol),
            scorer=canonical_digest(_scorer(suite)),
            overseer=canonical_digest(_model(suite.overseer, Matter.HOPELESS)) if suite.overseer else None,
            expert=canonical_digest(_expert(suite.expert)),
        ),
    )


def recipe_digest(config: ToolUseConfig, measured: Comparability) -> str:
    """Return the digest of what was asked. Addresses decide nothing and are not in it.

    Args:
        config: What to do.
        measured: From `comparability`.
    """
    target = config.adapter_digest or config.served_name
    return canonical_digest({**measured.model_dump(mode="json", exclude={"harness"}), "gym": GYM, "target": target})


def _agent(config: ToolUseConfig) -> dict[str, Any]:
    agent = config.agent
    limits = agent.budget.model_dump(include={"tokens", "wall_clock_seconds"}) if agent.budget else {}
    return {
        "maxTokens": agent.parameters.max_tokens or MAX_TOKENS,
        **{name: value for name, value in limits.items() if value is not None},
    }


def _tools(suite: ToolUseSuite) -> dict[str, Any]:
    """Return how tools are offered, and who searches: another one finds other documents."""
    search = suite.retriever.elasticsearch if suite.retriever is not None else None
    given = suite.tools.to_wire()
    return given if search is None else {**given, "elasticsearch": search.index_prefix or ""}


def _scorer(suite: ToolUseSuite) -> dict[str, Any]:
    scorer = suite.scorer
    judge = _model(scorer.judge, Matter.ANSWER, Matter.DECLINE) if scorer.kind is ScorerKind.JUDGE else {}
    return {"kind": str(scorer.kind), **judge}


def _model(endpoint: ModelEndpoint | None, *matters: Matter) -> dict[str, Any]:
    if endpoint is None:
        return {}
    return {"model": endpoint.model, "prompts": {str(one): PROMPTS[one] for one in matters}}


def _expert(expert: ExpertSpec) -> dict[str, Any]:
    """Return what of the expert counts in its mode."""
    counting = {
        ExpertMode.NONE: (),
        ExpertMode.GROUND_TRUTH: (),
        ExpertMode.RANDOM: ("epsilon",),
        ExpertMode.INFORMED: ("initialLimit", "recentLimit"),
    }[expert.mode]
    given = expert.to_wire()
    witness = {"witness": _model(expert.witness, Matter.WITNESSED)} if expert.witness is not None else {}
    return {
        "mode": str(expert.mode),
        **{name: given[name] for name in (*counting, "alternates", "branches")},
        **witness,
    }
