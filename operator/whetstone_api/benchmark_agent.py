"""Who works on the tasks of a BenchmarkRun, and how the model is sampled."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from whetstone_api.schema import ApiModel, DecimalString, Rule
from whetstone_api.source import FolderSource, Source
from whetstone_api.vocabulary import AGENT_ROOT, CONFIGMAPS_ROOT


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
    history_turns: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Latest turns that `whetstone` shows the model, beside the instruction; all when absent."""
    observation_characters: Annotated[int, Field(ge=1, le=1000000)] | None = None
    """Characters of a command's output that `whetstone` shows the model; 400 when absent."""
    command_seconds: Annotated[int, Field(ge=1, le=86400)] | None = None
    """Longest time of one command of `whetstone`; 120 when absent."""
    repeated_commands: Annotated[int, Field(ge=2, le=1000)] | None = None
    """How often in a row `whetstone` may be given the same command before the trial ends; no limit when absent."""


class AgentBudget(ApiModel):
    """What an agent may use up."""

    tokens: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = None
    """Tokens of one trial, prompts and replies together; the call after that ends the trial, and it is scored."""
    wall_clock_seconds: Annotated[int, Field(ge=1, le=604800)] | None = None
    """Seconds that the agent may work in one trial, all steps together; after that it is stopped and scored."""
    run_tokens: Annotated[int, Field(ge=1, le=1_000_000_000_000)] | None = None
    """Tokens of all trials together; the call after that ends the run without a result, its finished trials stay."""


OWN_AGENT = "own"
"""What an agent that users bring is called where others have a name."""


class ConfigMapRef(ApiModel):
    """A reference to a ConfigMap of the same namespace."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """Name of the ConfigMap."""


class AgentSpec(ApiModel):
    """Who works on the tasks."""

    name: AgentName | None = None
    """Agent by name; `terminus-2` when neither this nor `importPath` is given."""
    import_path: (
        Annotated[str, Field(max_length=253, pattern=r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$")] | None
    ) = None
    """Instead: a class of yours, `module:Class`, a subclass of Harbor's `BaseAgent`. It runs in a container that holds
    no token and no key."""
    config_map_ref: ConfigMapRef | None = None
    """Where that class lies: a ConfigMap whose keys are the files."""
    source: FolderSource | None = None
    """Instead: a folder in a claim, or one elsewhere that each pod of the run fetches."""
    parameters: AgentParameters = AgentParameters()
    """Its parameters."""
    options: Annotated[dict[str, Annotated[str, Field(max_length=4096)]], Field(max_length=64)] | None = None
    """Options of `terminus-2` by Harbor's own names (`parser_name: xml`), or arguments of your class; a value that is
    JSON is read as such."""
    budget: AgentBudget | None = None
    """What it may use up; no limit beside the tasks' own time when absent."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(rule="!(has(self.name) && has(self.importPath))", message="give at most one of name and importPath"),
        Rule(
            rule="has(self.importPath) == (has(self.configMapRef) || has(self.source))",
            message="importPath and the place of its code, configMapRef or source, go together",
        ),
        Rule(
            rule="!(has(self.configMapRef) && has(self.source))",
            message="give at most one of configMapRef and source",
        ),
    )

    @property
    def chosen(self) -> str:
        """Name of the agent that works."""
        return OWN_AGENT if self.import_path else (self.name or AgentName.TERMINUS_2).value

    @property
    def code_path(self) -> str | None:
        """Folder of the user's code inside a container that mounts it."""
        if self.config_map_ref is not None:
            return f"{CONFIGMAPS_ROOT}/{self.config_map_ref.name}"
        if self.source is None:
            return None
        return self.claimed.mount_path if self.claimed is not None else f"{AGENT_ROOT}/code"

    @property
    def claimed(self) -> Source | None:
        """The code's folder in a claim; None for code that lies elsewhere, or in an archive."""
        return self.source.in_claim if self.source is not None else None

    @property
    def in_claim(self) -> Source | None:
        """The code's folder or archive in a claim; None for code that lies elsewhere."""
        return self.claimed or (self.source.packed_in_claim if self.source is not None else None)


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
