"""Format of a published benchmark result: `results.json` beside Harbor's own job folder.

results.json      `RunArtifact`
harbor/<job>/…    Harbor's job folder, whose `result.json` files are the truth
"""

from pydantic import Field

from whetstone_api.benchmark_result import RunComparison, RunResults
from whetstone_api.benchmark_suite import RefusedTask
from whetstone_api.benchmark_target import MeasuredTarget
from whetstone_api.wire import WireModel

RESULTS_FILE = "results.json"
HARBOR_FOLDER = "harbor"


class TrialScore(WireModel):
    """One trial."""

    trial: str
    """Harbor's trial name."""
    reward: float | None = None
    """Reward; absent for a void trial."""
    error: str | None = None
    """Type of the exception that ended it, if any."""


class TaskScore(WireModel):
    """One task over its attempts."""

    task: str
    """Name of the task's folder."""
    digest: str
    """Digest of the task's files."""
    trials: list[TrialScore]


class Comparability(WireModel):
    """What must be equal for two runs to be compared; model and adapter are the treatment and not in here."""

    suite_digest: str
    agent: str
    """Agent with its parameters, as a canonical digest."""
    sampling: str
    """Sampling settings as a canonical digest."""
    attempts: int
    harness: str
    """Harness and version, `harbor 0.26.0`."""
    images: str | None = None
    """Images that `suite.harbor.images.map` replaced, as a canonical digest; a prefix does not count."""


class RunArtifact(WireModel):
    """A finished run."""

    recipe_digest: str
    target: MeasuredTarget
    comparability: Comparability
    results: RunResults
    comparison: RunComparison | None = None
    tasks: list[TaskScore] = Field(default_factory=list)
    refused: list[RefusedTask] = Field(default_factory=list)
    """Tasks of the suite that were not run, each with its reason."""
    images: dict[str, dict[str, str]] = Field(default_factory=dict)
    """Images that the trials of a task pulled, by task and by the folder of the container (`environment`)."""
    finished_at: str
    """RFC 3339."""
    object_name: str
    namespace: str
