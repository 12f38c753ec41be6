"""Who works on the tasks of a BenchmarkRun, and how the model is sampled."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from whetstone_api.schema import ApiModel, DecimalString, Rule


class AgentName(StrEnum):
    """Agents by name."""

    TERMINUS_2 = "terminus-2"
    """Harbor's reference agent: the model types into a terminal of the sandbox."""
    WHETSTONE = "whetstone"
    """Iterative bash: the model proposes a command, the sandbox runs it, the output goes back."""
    ORACLE = "oracle"
    """Runs each task's own solution; should score 1."""
    NOP = "nop"
    """Does nothing; should score 0."""


class AgentParameters(ApiModel):
    """Parameters of an agent. One that means nothing to the agent is refused before the run."""

    max_turns: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Model calls in one trial at most. `whetstone`: 10 when absent; `terminus-2`: no limit."""
    max_tokens: Annotated[int, Field(ge=1, le=131072)] | None = None
    """Tokens in one reply at most. `whetstone`: 1024 when absent; `terminus-2`: what the context has room for."""
    context_tokens: Annotated[int, Field(ge=16, le=4194304)] | None = None
    """Longest conversation in tokens, for `terminus-2`; what the server names when absent."""
    system_prompt: Annotated[str, Field(min_length=1, max_length=16384)] | None = None
    """System message of `whetstone`; its own when absent."""


class AgentBudget(ApiModel):
    """What an agent may use up."""

    tokens: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = None
    """Tokens of one trial, prompts and replies together; the call after that ends the trial, and it is scored."""
    wall_clock_seconds: Annotated[int, Field(ge=1, le=604800)] | None = None
    """Seconds that the agent may work in one trial, all steps together; after that it is stopped and scored."""
    run_tokens: Annotated[int, Field(ge=1, le=1_000_000_000_000)] | None = None
    """Tokens of all trials together; the call after that ends the run without a result, its finished trials stay."""


class AgentSpec(ApiModel):
    """Who works on the tasks."""

    name: AgentName = AgentName.TERMINUS_2
    """Agent by name."""
    parameters: AgentParameters = AgentParameters()
    """Its parameters."""
    budget: AgentBudget | None = None
    """What it may use up; no limit beside the tasks' own time when absent."""

    @property
    def chosen(self) -> str:
        """Name of the agent that works."""
        return self.name.value


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
