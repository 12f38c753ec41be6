"""`terminus-2`: Harbor's reference agent. It types into a tmux session of the sandbox; the model is asked from here.

The model is named `hosted_vllm/<served name>`: litellm then knows no prices and no limits of its own for it, so
`model_info` carries the length that the server names; without it terminus would never summarise.
"""

from pathlib import Path
from typing import Any, Final

from harbor.agents.base import BaseAgent
from harbor.agents.options import AgentOptions
from whetstone_api.benchmark_agent import AgentSpec

from whetstone_agent.agents.door import REQUEST_SECONDS, Door
from whetstone_agent.agents.options import read_options

PARAMETERS: Final = frozenset({"contextTokens", "maxTurns", "maxTokens"})
"""Fields of `spec.agent.parameters` that mean something to it."""
MANAGED: Final = frozenset(
    {
        "api_base",
        "base_url",
        "collect_rollout_details",
        "episodes",
        "llm_backend",
        "llm_call_kwargs",
        "llm_kwargs",
        "max_episodes",
        "max_turns",
        "model_info",
        "record_terminal_session",
        "session_id",
        "session_id_headers",
        "temperature",
        "use_responses_api",
    }
)
"""Its options that the runner or `spec.agent.parameters` sets."""
_FREE_TOKENS: Final = 8000
"""Harbor's default: with fewer free tokens than that the conversation is summarised before it goes on."""
_FREE_SHARE: Final = 4
"""A model of a short context would summarise at every turn; it does so in the last quarter instead."""
_PATIENCE: Final = 2.0
"""Times the door's own limit after which litellm gives up: the door's answer names the cause."""


def options_model() -> type[AgentOptions]:
    """Return what its options must fit."""
    from harbor.agents.terminus_2.terminus_2 import Terminus2Options

    model: type[AgentOptions] = Terminus2Options
    return model


def settings(agent: AgentSpec) -> dict[str, Any]:
    """Return its settings, also what makes it itself: in the spec's own words, without what is not set."""
    options = read_options(agent.options or {})
    return {**agent.parameters.to_wire(), **({"options": options} if options else {})}


def build(*, door: Door, url: str, settings: dict[str, Any], logs_dir: Path, **common: Any) -> BaseAgent:
    """Return Harbor's agent for one trial."""
    from harbor.agents.terminus_2.terminus_2 import Terminus2

    context, most = door.context_tokens, settings.get("maxTokens")
    if context is None:
        raise RuntimeError("terminus-2 must know the model's length")
    return Terminus2(
        logs_dir,
        f"hosted_vllm/{door.served_name}",
        max_turns=settings.get("maxTurns"),
        suppress_max_turns_warning=True,
        # Recording wants asciinema in the sandbox, and gives nothing that the trajectory does not hold.
        record_terminal_session=False,
        model_info={
            "max_input_tokens": context,
            "max_output_tokens": most or context,
            "input_cost_per_token": 0.0,
            "output_cost_per_token": 0.0,
        },
        llm_kwargs={"timeout": REQUEST_SECONDS * _PATIENCE, "max_retries": 0},
        llm_call_kwargs=None if most is None else {"max_tokens": most},
        base_url=url,
        **{
            # Training data are made of what the model saw, and not of what terminus made of it.
            "store_all_messages": True,
            "proactive_summarization_threshold": min(_FREE_TOKENS, context // _FREE_SHARE),
            **settings.get("options", {}),
        },
        **{key: value for key, value in common.items() if key != "skip_model_parsing"},
    )
