"""What a runner gets of a `toolUse` suite. Pure."""

from typing import Any

from whetstone_api.benchmark_tooluse import (
    API_KEY_VARIABLE,
    OVERSEER_KEY_VARIABLE,
    RETRIEVER_KEY_VARIABLE,
    SCORER_KEY_VARIABLE,
    WITNESS_KEY_VARIABLE,
    ToolUseSuite,
)
from whetstone_api.jobs import RunConfig, ToolUseConfig

from whetstone_operator.resources.access import endpoint_variable, secret_variable
from whetstone_operator.resources.fetching import environment_path


def tool_use_config(suite: ToolUseSuite, common: RunConfig) -> ToolUseConfig:
    """Return what the runner reads.

    Args:
        suite: The suite.
        common: What is read of every run.
    """
    namespace = common.object.namespace
    judge, overseer, witness = suite.scorer.judge, suite.overseer, suite.expert.witness
    return ToolUseConfig(
        **dict(common),
        tool_use=suite,
        environment_path=environment_path(suite.environment),
        scorer_url=judge.base_url(namespace) if judge is not None else None,
        overseer_url=overseer.base_url(namespace) if overseer is not None else None,
        witness_url=witness.base_url(namespace) if witness is not None else None,
    )


def tool_use_environment(suite: ToolUseSuite | None) -> tuple[dict[str, Any], ...]:
    """Return the variables with the keys of API, scorer, overseer and witness; none without such a suite."""
    if suite is None:
        return ()
    search = suite.retriever.elasticsearch.secret_ref if suite.retriever is not None else None
    keys = ((suite.api.secret_ref, API_KEY_VARIABLE), (search, RETRIEVER_KEY_VARIABLE))
    models = (
        (suite.scorer.judge, SCORER_KEY_VARIABLE),
        (suite.overseer, OVERSEER_KEY_VARIABLE),
        (suite.expert.witness, WITNESS_KEY_VARIABLE),
    )
    found = [secret_variable(variable, reference) for reference, variable in keys if reference is not None]
    asked = [endpoint_variable(model, variable) for model, variable in models if model is not None]
    return (*found, *(one for one in asked if one is not None))


def tool_use_config_maps(suite: ToolUseSuite | None) -> tuple[str, ...]:
    """Return the ConfigMap with Elasticsearch's certificate authority."""
    return (suite.authority.name,) if suite is not None and suite.authority is not None else ()
