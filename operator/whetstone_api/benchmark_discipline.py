"""How disciplined the agent of a BenchmarkRun works: which tools mean what, and the figures."""

from typing import Annotated

from pydantic import Field

from whetstone_api.schema import ApiModel, DecimalString, SignedDecimalString

ToolName = Annotated[str, Field(min_length=1, max_length=128)]
ArgumentName = Annotated[str, Field(min_length=1, max_length=128)]
ToolNames = Annotated[list[ToolName], Field(max_length=32)]


class EditTool(ApiModel):
    """Arguments of a tool that replaces a text in a file."""

    path: ArgumentName = "path"
    """Which file."""
    old: ArgumentName = "old_str"
    """The text that goes."""
    new: ArgumentName = "new_str"
    """The text that comes."""


class WriteTool(ApiModel):
    """Arguments of a tool that writes a whole file."""

    path: ArgumentName = "path"
    """Which file."""
    content: ArgumentName = "content"
    """Its new text."""


class ReadTool(ApiModel):
    """Arguments of a tool that returns a whole file."""

    path: ArgumentName = "path"
    """Which file."""


class DisciplineRules(ApiModel):
    """Which tools mean what. A call of any other tool is work, and every phase allows it."""

    done: ToolNames = Field(default=["todo_complete"])
    """Tools that mark a todo done; only the tactical phase may call them."""
    finish: ToolNames = Field(default=["job_complete"])
    """Tools that end the job; only the strategic phase may call them."""
    next_phase: ToolNames = Field(default=["next_phase_todos"])
    """Tools that begin the tactical phase, with the todos in their first list; only the strategic phase may do so."""
    edits: dict[str, EditTool] = Field(default={"str_replace": EditTool()}, max_length=32)
    """Tools that replace a text in a file, by name."""
    writes: dict[str, WriteTool] = Field(default={"write_file": WriteTool()}, max_length=32)
    """Tools that write a whole file, by name."""
    reads: dict[str, ReadTool] = Field(default={"read_file": ReadTool()}, max_length=32)
    """Tools that return a whole file, by name."""


class DisciplineFigures(ApiModel):
    """How disciplined the agent worked; a figure that no trajectory tells is absent."""

    trajectories: int
    """Conversations of scored trials that the figures are over."""
    unread: int = 0
    """Conversations that could not be read and are in no figure."""
    todo_completion: DecimalString | None = None
    """Share of the todos that were marked done, over trials that did not fail."""
    extra_tokens: DecimalString | None = None
    """Tokens that edits wrote beyond the smallest ones that do the same, as a share of these."""
    phase_adherence: DecimalString | None = None
    """Share of the calls of tools that their phase allows."""
    success: DecimalString | None = None
    """Share of the trajectories with a full reward."""
    tokens_per_task: DecimalString | None = None
    """Words and signs that the assistant wrote for a task, mean over tasks."""
    token_change: SignedDecimalString | None = None
    """The same against the baseline, over the tasks of both, as a share: -0.2 is a fifth less."""
