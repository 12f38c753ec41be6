"""What a BenchmarkRun asks the model to do."""

from typing import Annotated

from pydantic import Field

from whetstone_api.schema import ApiModel, Resources
from whetstone_api.source import Source

Globs = Annotated[list[Annotated[str, Field(min_length=1, max_length=253)]], Field(max_length=1000)]


class TaskFilter(ApiModel):
    """Which tasks of the dataset to run."""

    include: Globs | None = None
    """Glob patterns of task names; all when absent."""
    exclude: Globs | None = None
    """Glob patterns of task names to leave out."""
    limit: Annotated[int, Field(ge=1, le=100000)] | None = None
    """Only the first so many tasks, by name."""


class HarborSuite(ApiModel):
    """A folder of Harbor tasks."""

    dataset: Source
    """Folder whose sub-folders are Harbor tasks."""
    tasks: TaskFilter | None = None
    """Which tasks to run."""
    trial_resources: Resources | None = None
    """Resources of each trial's container, instead of what its task asks for."""


class SuiteSpec(ApiModel):
    """What the model is asked to do."""

    harbor: HarborSuite
    """Harbor tasks."""
