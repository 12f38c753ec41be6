"""`whetstone`: the project's own iterative bash agent, from a spec."""

from pathlib import Path
from typing import Any, Final

from harbor.agents.base import BaseAgent
from whetstone_api.benchmark_agent import AgentParameters

from whetstone_agent.agents.door import Door
from whetstone_agent.conversation import SYSTEM_PROMPT

PARAMETERS: Final = frozenset({"maxTurns", "maxTokens", "systemPrompt"})
"""Fields of `spec.agent.parameters` that mean something to it."""
MAX_TURNS: Final = 10
MAX_TOKENS: Final = 1024


def settings(parameters: AgentParameters) -> dict[str, Any]:
    """Return its settings, also what makes it itself: with its defaults, in the spec's own words."""
    return {
        "maxTurns": parameters.max_turns or MAX_TURNS,
        "maxTokens": parameters.max_tokens or MAX_TOKENS,
        "systemPrompt": parameters.system_prompt or SYSTEM_PROMPT,
    }


def build(*, door: Door, url: str, settings: dict[str, Any], logs_dir: Path, **common: Any) -> BaseAgent:
    """Return Harbor's agent for one trial."""
    from whetstone_agent.iterative import IterativeBashAgent

    return IterativeBashAgent(
        logs_dir,
        door.served_name,
        skip_model_parsing=True,
        server_url=url,
        served_name=door.served_name,
        max_turns=settings["maxTurns"],
        max_tokens=settings["maxTokens"],
        system_prompt=settings["systemPrompt"],
        **{key: value for key, value in common.items() if key != "skip_model_parsing"},
    )
