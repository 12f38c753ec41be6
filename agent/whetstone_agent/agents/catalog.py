"""Every agent that a run can name: what it asks, what makes it itself, how Harbor gets it, and what is refused."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harbor.agents.base import BaseAgent
from whetstone_api.benchmark_agent import OWN_AGENT, AgentName, AgentSpec
from whetstone_api.jobs import BenchmarkConfig
from whetstone_api.vocabulary import Reason

from whetstone_agent.agents import terminus, whetstone
from whetstone_agent.agents.door import Door
from whetstone_agent.agents.options import FIELD, check_options
from whetstone_agent.agents.own import code
from whetstone_agent.failure import RunFailure

MEASURED: Final = "whetstone_agent.agents.measured:MeasuredAgent"
_SILENT: Final = frozenset({AgentName.ORACLE, AgentName.NOP})
"""Agents that ask no model; nothing of parameters, budgets and sampling means anything to them."""


@dataclass(frozen=True, kw_only=True)
class Builder:
    """What the file of an agent that asks the model gives."""

    parameters: frozenset[str]
    """Fields of `spec.agent.parameters` that mean something to it."""
    settings: Callable[[AgentSpec], dict[str, Any]]
    build: Callable[..., BaseAgent]


_BUILDERS: Final = {
    str(name): Builder(parameters=file.PARAMETERS, settings=file.settings, build=file.build)
    for name, file in ((AgentName.WHETSTONE, whetstone), (AgentName.TERMINUS_2, terminus), (OWN_AGENT, code))
}


def asks_model(agent: AgentSpec) -> bool:
    """Say whether an agent asks the model at all."""
    return agent.chosen not in _SILENT


def needs_length(agent: AgentSpec) -> bool:
    """Say whether an agent cannot work without the length of the model's context."""
    return agent.chosen == AgentName.TERMINUS_2


def needs_tmux(agent: AgentSpec) -> bool:
    """Say whether an agent cannot work in a sandbox without tmux."""
    return agent.chosen == AgentName.TERMINUS_2


def agent_identity(agent: AgentSpec, code_path: str | None = None) -> dict[str, Any]:
    """Return what makes an agent itself, for the recipe.

    What is not set has no key, so that a new field changes no digest of a run that does not use it.

    Args:
        agent: The spec.
        code_path: Folder of a user's agent; its files count, wherever they lie.
    """
    if not asks_model(agent):
        return {"name": agent.chosen}
    identity = {"name": agent.chosen, **agent_settings(agent)}
    if code_path is not None:
        identity["code"] = code.code_digest(Path(code_path))
    budget = agent.budget
    limits = {"tokens": budget.tokens, "wallClockSeconds": budget.wall_clock_seconds} if budget else {}
    limits = {name: value for name, value in limits.items() if value is not None}
    return {**identity, "budget": limits} if limits else identity


def agent_settings(agent: AgentSpec) -> dict[str, Any]:
    """Return the settings of an agent that asks the model."""
    builder = _BUILDERS[agent.chosen]
    return builder.settings(agent)


def validate_agent(agent: AgentSpec) -> None:
    """Refuse a parameter that means nothing to the agent: it would be ignored, and the run not be what it says.

    Raises:
        RunFailure: `INVALID_SPEC`, naming the field.
    """
    known = _BUILDERS[agent.chosen].parameters if asks_model(agent) else frozenset()
    for name in sorted(agent.parameters.to_wire()):
        if name not in known:
            raise RunFailure(
                Reason.INVALID_SPEC,
                f"spec.agent.parameters.{name}: agent {agent.chosen} has no such parameter"
                f" (it has: {', '.join(sorted(known)) or 'none'}); leave it out or name another agent",
            )
    if agent.chosen == AgentName.TERMINUS_2:
        model = terminus.options_model()
        check_options(agent.options or {}, model=model, managed=terminus.MANAGED, agent=agent.chosen)
    elif agent.options and agent.chosen != OWN_AGENT:
        message = f"{FIELD}: agent {agent.chosen} has none; leave it out, or use spec.agent.parameters"
        raise RunFailure(Reason.INVALID_SPEC, message)


def agent_entries(config: BenchmarkConfig) -> tuple[list[dict[str, Any]], int]:
    """Return Harbor's agents of a job, and the attempts of each.

    The attempts of an agent that asks the model are one Harbor agent each, because each has a seed of its own.
    """
    agent = config.agent
    if not asks_model(agent):
        return [{"name": agent.chosen}], config.attempts
    budget = agent.budget
    entries = [
        {
            "import_path": MEASURED,
            "model_name": config.served_name,
            "skip_model_parsing": True,
            "kwargs": {
                "agent": agent.chosen,
                "settings": agent_settings(agent),
                "seed": config.sampling.seed + attempt,
                "budget_tokens": budget.tokens if budget else None,
                "budget_seconds": budget.wall_clock_seconds if budget else None,
            },
        }
        for attempt in range(config.attempts)
    ]
    return entries, 1


def build_inner(
    name: str, *, door: Door, url: str, settings: dict[str, Any], logs_dir: Path, **common: Any
) -> BaseAgent:
    """Return the agent that works in one trial.

    Args:
        name: From `AgentSpec.chosen`.
        door: The open door.
        url: Base URL of the trial's session.
        settings: From `agent_settings`.
        logs_dir: Folder of its files.
        common: What Harbor hands to any agent.
    """
    return _BUILDERS[name].build(door=door, url=url, settings=settings, logs_dir=logs_dir, **common)
