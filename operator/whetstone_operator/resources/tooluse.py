"""What a runner gets of a `toolUse` suite. Pure."""

from typing import Any

from whetstone_api.access import SecretKeyRef
from whetstone_api.benchmark_tooluse import (
    API_KEY_VARIABLE,
    OVERSEER_KEY_VARIABLE,
    RETRIEVER_KEY_VARIABLE,
    SCORER_KEY_VARIABLE,
    ToolUseSuite,
)
from whetstone_api.jobs import RunConfig, ToolUseConfig
from whetstone_api.model_endpoint import ModelEndpoint

from whetstone_operator.resources.access import runner_environment


def tool_use_config(suite: ToolUseSuite, common: RunConfig) -> ToolUseConfig:
    """Return what the runner reads.

    Args:
        suite: The suite.
        common: What is read of every run.
    """
    namespace = common.object.namespace
    judge, overseer = suite.scorer.judge, suite.overseer
    return ToolUseConfig(
        **dict(common),
        tool_use=suite,
        environment_path=suite.environment.mount_path,
        scorer_url=judge.base_url(namespace) if judge is not None else None,
        overseer_url=overseer.base_url(namespace) if overseer is not None else None,
    )


def tool_use_environment(suite: ToolUseSuite | None) -> tuple[dict[str, Any], ...]:
    """Return the variables with the keys of API, scorer and overseer; none without such a suite."""
    if suite is None:
        return ()
    found = [_key(suite.api.secret_ref, API_KEY_VARIABLE)]
    if suite.retriever is not None:
        found.append(_key(suite.retriever.elasticsearch.secret_ref, RETRIEVER_KEY_VARIABLE))
    found += [
        _model_key(model, variable)
        for model, variable in ((suite.scorer.judge, SCORER_KEY_VARIABLE), (suite.overseer, OVERSEER_KEY_VARIABLE))
    ]
    return tuple(one for one in found if one is not None)


def tool_use_config_maps(suite: ToolUseSuite | None) -> tuple[str, ...]:
    """Return the ConfigMap with Elasticsearch's certificate authority."""
    return (suite.authority.name,) if suite is not None and suite.authority is not None else ()


def _model_key(model: ModelEndpoint | None, variable: str) -> dict[str, Any] | None:
    if model is None:
        return None
    if model.model_server_ref is not None:
        return runner_environment(model.model_server_ref.name, variable=variable)
    return _key(model.secret_ref, variable)


def _key(reference: SecretKeyRef | None, variable: str) -> dict[str, Any] | None:
    if reference is None:
        return None
    return {"name": variable, "valueFrom": {"secretKeyRef": reference.to_wire()}}
