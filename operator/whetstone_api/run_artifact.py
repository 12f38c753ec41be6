"""Format of a published benchmark result: `results.json` beside Harbor's own job folder.

results.json      `RunArtifact`
trials.parquet    a row a trial, the columns of `TrialScore`
harbor/<job>/…    Harbor's job folder, whose `result.json` files are the truth
episodes/…        of a `toolUse` suite instead: a folder a trial, whose `episode.json` files are the truth
sources/<…>.json  `FetchRecord` of what an attempt of a run has fetched from elsewhere
"""

from pydantic import Field

from whetstone_api.benchmark_discipline import DisciplineFigures
from whetstone_api.benchmark_result import Interval, RunComparison, RunResults
from whetstone_api.benchmark_suite import RefusedTask
from whetstone_api.benchmark_target import EngineCheck, MeasuredTarget
from whetstone_api.wire import WireModel

RESULTS_FILE = "results.json"
TRIALS_FILE = "trials.parquet"
HARBOR_FOLDER = "harbor"
SOURCES_FOLDER = "sources"
EPISODES_FOLDER = "episodes"
TRIAL_FOLDERS = (HARBOR_FOLDER, EPISODES_FOLDER)
"""Where the folders of trials lie, of either kind of suite."""


class FetchRecord(WireModel):
    """What the first pod of an attempt found at a place; its other pods take nothing else."""

    uri: str
    """The place as it was asked for."""
    resolved: str
    """The same with the branch or tag of a hub replaced by its commit."""
    digest: str | None = None
    """Digest of all files; absent while nothing has been fetched whole."""


class StepScore(WireModel):
    """One step of a task of several steps."""

    name: str
    reward: float | None = None
    """Reward; absent for a step that was not reached, which counts as 0."""


class TrialScore(WireModel):
    """One trial."""

    trial: str
    """Harbor's trial name."""
    reward: float | None = None
    """Reward; absent for a void trial."""
    error: str | None = None
    """Type of the exception that ended it, if any."""
    end: str | None = None
    """How the agent says that it ended: `Finished`, `MaxTurns`, `ContextLength`, or another agent's word."""
    rewards: dict[str, float] | None = None
    """Every key of a verifier that gives several."""
    steps: list[StepScore] | None = None
    """Steps of a task that has them, all that it declares."""
    timed_out: bool = False
    """The agent ran out of time."""
    truncated: bool = False
    """The token limit cut a reply off."""
    context_overflow: bool = False
    """The conversation outgrew the model's context."""
    turns: int | None = None
    """Model calls, where the agent counts them."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    started_at: str | None = None
    """RFC 3339."""
    seconds: float | None = None
    """Seconds from start to end, sandbox and verification included."""
    agent_seconds: float | None = None
    """Seconds that the agent worked."""
    verifier_seconds: float | None = None
    """Seconds that the verification took."""


class TaskScore(WireModel):
    """One task over its attempts."""

    task: str
    """Name of the task's folder."""
    digest: str
    """Digest of the task's files."""
    tags: list[str] = Field(default_factory=list)
    """What its `[metadata]` is tagged with."""
    trials: list[TrialScore]


class ToolUseComparability(WireModel):
    """What further must be equal for two runs of a `toolUse` suite to be compared."""

    environment: str
    """Digest of collections and API document."""
    steps: str
    """Horizon, repeated actions and characters shown, as a canonical digest."""
    tools: str
    """How tools are offered, as a canonical digest."""
    protocol: str
    scorer: str
    """Kind of scorer, and of a judge its model and prompts, as a canonical digest."""
    overseer: str | None = None
    """Its model and prompt as a canonical digest."""
    expert: str
    """When the expert acts, as a canonical digest."""


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
    tool_use: ToolUseComparability | None = None
    """Of a `toolUse` suite."""


class EngineUse(WireModel):
    """How busy the engines were during the trials, by one of their series."""

    name: str
    """`kvCacheUsage`, `requestsRunning`, `requestsWaiting`, or `prefixCacheHits` over the whole run."""
    minimum: float
    mean: float
    maximum: float
    samples: int


class ScenarioScore(WireModel):
    """Tasks of a `toolUse` suite that offer the same kinds of tools."""

    scenario: str
    """`both, answerable`: which kinds of tools there are, and whether the question can be answered with them."""
    tasks: int
    """Tasks with at least one scored trial."""
    mean: float
    interval: Interval | None = None


class ToolUseFigures(WireModel):
    """What is told of a `toolUse` suite beyond scores."""

    scenarios: list[ScenarioScore] = Field(default_factory=list)
    ends: dict[str, int] = Field(default_factory=dict)
    """Trials by how they ended."""
    steps: dict[str, int] = Field(default_factory=dict)
    """Steps by what they were."""
    agent_steps: int = 0
    expert_steps: int = 0
    overseer_silent: int = 0
    """Steps after which the overseer said nothing that can be used."""
    witness_silent: int = 0
    """Steps after which the expert's witness said nothing that can be used."""


class RunArtifact(WireModel):
    """A finished run."""

    recipe_digest: str
    target: MeasuredTarget
    engine_check: EngineCheck | None = None
    """Whether the engines stayed the same; absent where nobody could tell."""
    invalid: str | None = None
    """Why the run is not valid, by the `maximumErrorRate` that it was measured or adopted with; absent where it is."""
    comparability: Comparability
    results: RunResults
    comparison: RunComparison | None = None
    engine_use: list[EngineUse] = Field(default_factory=list)
    """How busy the engines were, where they tell."""
    tasks: list[TaskScore] = Field(default_factory=list)
    tool_use: ToolUseFigures | None = None
    """Of a `toolUse` suite."""
    refused: list[RefusedTask] = Field(default_factory=list)
    """Tasks of the suite that were not run, each with its reason."""
    discipline: dict[str, DisciplineFigures] = Field(default_factory=dict)
    """How disciplined the agent worked, by rung of what its conversations called."""
    without_solution: list[str] = Field(default_factory=list)
    """Tasks that were run though no solution of their own vouches for them; empty where none was asked for."""
    images: dict[str, dict[str, str]] = Field(default_factory=dict)
    """Images that the trials of a task pulled, by task and by the folder of the container (`environment`)."""
    finished_at: str
    """RFC 3339."""
    object_name: str
    namespace: str

    @property
    def spoiled(self) -> str | None:
        """Why its figures are no score; None where nothing says that they are none."""
        return self.invalid or (self.engine_check.change if self.engine_check is not None else None)
