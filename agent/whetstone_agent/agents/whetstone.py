"""`whetstone`: the project's own iterative bash agent, from a spec."""

from pathlib import Path
from typing import Any, Final

from harbor.agents.base import BaseAgent
from whetstone_api.benchmark_agent import AgentSpec

from whetstone_agent.agents.door import Door
from whetstone_agent.conversation import SYSTEM_PROMPT

_OPTIONS: Final = {
    "maxTurns": "max_turns",
    "maxTokens": "max_tokens",
    "systemPrompt": "system_prompt",
    "historyTurns": "history_turns",
    "observationCharacters": "observation_characters",
    "commandSeconds": "command_seconds",
    "repeatedCommands": "repeated_commands",
}
"""The agent's own options, by the fields of `spec.agent.parameters` that mean something to it."""
PARAMETERS: Final = frozenset(_OPTIONS)
MAX_TURNS: Final = 10
MAX_TOKENS: Final = 1024


def settings(agent: AgentSpec) -> dict[str, Any]:
    """Return its settings, also what makes it itself, in the spec's own words.

    The first three with their defaults, the others only where they are set: a recipe without them stays what it was.
    """
    given = agent.parameters.to_wire()
    return {"maxTurns": MAX_TURNS, "maxTokens": MAX_TOKENS, "systemPrompt": SYSTEM_PROMPT, **given}


def build(*, door: Door, url: str, settings: dict[str, Any], logs_dir: Path, **common: Any) -> BaseAgent:
    """Return Harbor's agent for one trial."""
    from whetstone_agent.iterative import IterativeBashAgent

    return IterativeBashAgent(
        logs_dir,
        door.served_name,
        skip_model_parsing=True,
        server_url=url,
        served_name=door.served_name,
        **{_OPTIONS[name]: value for name, value in settings.items()},
        **{key: value for key, value in common.items() if key != "skip_model_parsing"},
    )
