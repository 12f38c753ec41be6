"""What a BenchmarkRun asks the model to do."""

from enum import StrEnum
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


class NetworkLimits(StrEnum):
    """What becomes of tasks that ask for no network, or for an allowlist."""

    ENFORCED = "Enforced"
    """The run starts only where the cluster is seen to enforce NetworkPolicies."""
    BEST_EFFORT = "BestEffort"
    """The policies are made, and the run goes on where nothing enforces them."""


class TrialEnvironment(ApiModel):
    """The sandbox of each trial."""

    network_limits: NetworkLimits = NetworkLimits.ENFORCED
    """What becomes of tasks that ask for no network, or for an allowlist."""

    queue_seconds: Annotated[int, Field(ge=1, le=604800)] = 3600
    """Seconds that a trial's pod may wait for room, in the namespace's quota or on a node."""
    start_seconds: Annotated[int, Field(ge=1, le=86400)] | None = None
    """Seconds from its node to running, image pull included; the task's `build_timeout_sec` when absent."""


class HarborSuite(ApiModel):
    """A folder of Harbor tasks."""

    dataset: Source
    """Folder whose sub-folders are Harbor tasks."""
    tasks: TaskFilter | None = None
    """Which tasks to run."""
    trial_resources: Resources | None = None
    """Resources of each trial's container, instead of what its task asks for."""
    environment: TrialEnvironment | None = None
    """The sandbox of each trial; a pod with the default limits when absent."""


class SuiteSpec(ApiModel):
    """What the model is asked to do."""

    harbor: HarborSuite
    """Harbor tasks."""
