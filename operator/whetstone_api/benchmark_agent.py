"""Who works on the tasks of a BenchmarkRun, and how the model is sampled."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from whetstone_api.schema import ApiModel, DecimalString, Rule


class AgentName(StrEnum):
    """Agents by name."""

    WHETSTONE = "whetstone"
    """Iterative bash: the model proposes a command, the sandbox runs it, the output goes back."""
    ORACLE = "oracle"
    """Runs each task's own solution; should score 1."""
    NOP = "nop"
    """Does nothing; should score 0."""


class AgentParameters(ApiModel):
    """Parameters of the agent `whetstone`."""

    max_turns: Annotated[int, Field(ge=1, le=1000)] = 10
    """Model calls in one trial at most."""
    max_tokens: Annotated[int, Field(ge=1, le=131072)] = 1024
    """Tokens in one reply at most."""
    system_prompt: Annotated[str, Field(min_length=1, max_length=16384)] | None = None
    """System message; the agent's own when absent."""


class AgentSpec(ApiModel):
    """Who works on the tasks."""

    name: AgentName = AgentName.WHETSTONE
    """Agent by name."""
    parameters: AgentParameters = AgentParameters()
    """Its parameters."""


class SamplingSpec(ApiModel):
    """How the model is sampled."""

    temperature: DecimalString = "0"
    """Sampling temperature."""
    top_p: DecimalString = "1"
    """Share of the probability that is sampled from, above 0 and at most 1."""
    seed: Annotated[int, Field(ge=0, le=4294967295)] = 0
    """Seed sent with each request; attempt k adds k."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="double(self.topP) > 0.0 && double(self.topP) <= 1.0",
            message="topP must be above 0 and at most 1",
        ),
    )
