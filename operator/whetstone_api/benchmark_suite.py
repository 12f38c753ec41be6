"""What a BenchmarkRun asks the model to do."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from whetstone_api.benchmark_oracle import OracleSpec
from whetstone_api.benchmark_tooluse import ToolUseSuite
from whetstone_api.schema import ApiModel, Resources, Rule
from whetstone_api.source import (
    PLAIN,
    Digest,
    FolderUri,
    SecretRef,
    Source,
    archive_in_claim,
    folder_in_claim,
)
from whetstone_api.vocabulary import TaskRefusal

Globs = Annotated[list[Annotated[str, Field(min_length=1, max_length=253)]], Field(max_length=1000)]


class TaskFilter(ApiModel):
    """Which tasks of the dataset to run."""

    include: Globs | None = None
    """Glob patterns of task names; all when absent."""
    exclude: Globs | None = None
    """Glob patterns of task names to leave out."""
    limit: Annotated[int, Field(ge=1, le=100000)] | None = None
    """Only the first so many tasks, by name."""


class EnvironmentKind(StrEnum):
    """What a trial runs in."""

    POD = "Pod"
    """A pod of the task's image."""
    PROCESS = "Process"
    """Processes in the runner's own container, isolated from nothing; for CI and laptops."""


class NetworkLimits(StrEnum):
    """What becomes of tasks that ask for no network, or for an allowlist."""

    ENFORCED = "Enforced"
    """The run starts only where the cluster is seen to enforce NetworkPolicies."""
    BEST_EFFORT = "BestEffort"
    """The policies are made, and the run goes on where nothing enforces them."""


class TrialEnvironment(ApiModel):
    """The sandbox of each trial."""

    kind: EnvironmentKind = EnvironmentKind.POD
    """What a trial runs in."""
    network_limits: NetworkLimits = NetworkLimits.ENFORCED
    """What becomes of tasks that ask for no network, or for an allowlist."""

    queue_seconds: Annotated[int, Field(ge=1, le=604800)] = 3600
    """Seconds that a trial's pod may wait for room, in the namespace's quota or on a node."""
    start_seconds: Annotated[int, Field(ge=1, le=86400)] | None = None
    """Seconds from its node to running, image pull included; the task's `build_timeout_sec` when absent."""


_HOST = r"[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]{1,5})?"
_PATH = r"(/[a-z0-9][a-z0-9._-]*)*"
ImagePrefix = Annotated[str, Field(min_length=1, max_length=255, pattern=rf"^{_HOST}{_PATH}$")]
ImageReference = Annotated[
    str, Field(min_length=1, max_length=512, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*(@sha256:[0-9a-f]{64})?$")
]


class ImageRewriting(ApiModel):
    """Where trial pods pull the images of tasks from."""

    prefix: ImagePrefix | None = None
    """Put before every image, as in `registry.example.com/mirror`: a registry that mirrors the same images."""
    map: Annotated[dict[str, ImageReference], Field(max_length=1000)] | None = None
    """Instead, for images named exactly so in `task.toml`, another reference. Runs with different maps are not
    comparable: the content may differ."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(rule="has(self.prefix) || has(self.map)", message="give prefix, map or both"),
    )


class WhenRefused(StrEnum):
    """What becomes of a run when a task of its suite cannot run here."""

    FAIL = "Fail"
    """The run fails before its first trial and names the tasks."""
    EXCLUDE = "Exclude"
    """The others are run; the results name those that are left out, and the suite digest is that of the others."""


class RefusedTask(ApiModel):
    """A task that is not run."""

    task: Annotated[str, Field(max_length=253)]
    """Name of its folder."""
    reason: TaskRefusal
    """Why, in a word."""
    message: str
    """Why, and what to do."""


class RefusedTasks(ApiModel):
    """Tasks that are not run for one reason."""

    reason: Annotated[str, Field(max_length=64)]
    """Why, in a word."""
    count: int
    """How many."""
    names: Annotated[list[Annotated[str, Field(max_length=253)]], Field(max_length=8)]
    """The first of them; `results.json` has all."""


class ArchiveRef(ApiModel):
    """A reference to one key of a ConfigMap of the same namespace, which holds an archive of tasks."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """Name of the ConfigMap."""
    key: Annotated[str, Field(max_length=253, pattern=r"^[-._a-zA-Z0-9]+\.(tar|tar\.gz|tgz|zip|parquet)$")]
    """Key in it: `.tar`, `.tar.gz`, `.tgz`, `.zip` or `.parquet`."""


class TaskSet(ApiModel):
    """Where the tasks lie: a folder of a claim, or a place from which every pod of the run fetches them."""

    uri: FolderUri | None = None
    """`pvc://claim/folder`, whose sub-folders are tasks; or a bundle, an archive (`.tar`, `.tar.gz`, `.tgz`, `.zip`,
    `.parquet`) or a folder at `hf://datasets/owner/repo@revision/path`, `s3://bucket/key`, `https://host/path` or
    `oci://registry/repo@sha256:…`; or an archive at `pvc://claim/file`."""
    config_map_ref: ArchiveRef | None = None
    """Instead: a key of a ConfigMap that holds a small archive."""
    digest: Digest | None = None
    """`sha256:…` of the task set, as `whetstone bundle` prints it; when given, any other set is refused."""
    secret_ref: SecretRef | None = None
    """The Secret with what the place asks for: keys, token, endpoint, certificate authority."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(rule="has(self.uri) != has(self.configMapRef)", message="give exactly one of uri and configMapRef"),
        Rule(rule=f"!has(self.uri) || ({PLAIN.rule})", message=PLAIN.message),
        Rule(
            rule="!has(self.secretRef) || (has(self.uri) && !self.uri.startsWith('pvc://'))",
            message="secretRef has no use with pvc:// or configMapRef; leave it out",
        ),
    )

    @property
    def in_claim(self) -> Source | None:
        """The folder in a claim; None for a set that must be fetched, or unpacked."""
        return folder_in_claim(self.uri) if self.uri is not None else None

    @property
    def packed_in_claim(self) -> Source | None:
        """The archive in a claim; None for any other place."""
        return archive_in_claim(self.uri) if self.uri is not None else None

    @property
    def told(self) -> str:
        """Where it lies, for messages."""
        if self.config_map_ref is not None:
            return f"key {self.config_map_ref.key} of ConfigMap {self.config_map_ref.name}"
        return self.uri or ""


class HarborSuite(ApiModel):
    """A set of Harbor tasks."""

    dataset: TaskSet
    """Where the tasks lie."""
    tasks: TaskFilter | None = None
    """Which tasks to run."""
    refused: WhenRefused = WhenRefused.FAIL
    """What becomes of the run when a task cannot run here."""
    oracle: OracleSpec | None = None
    """Runs each task's own solution before the first trial, and refuses tasks that it does not solve; no check when
    absent."""
    images: ImageRewriting | None = None
    """Where trial pods pull the images of tasks from; as tasks name them when absent."""
    trial_resources: Resources | None = None
    """Resources of each trial's container, instead of what its task asks for."""
    environment: TrialEnvironment | None = None
    """The sandbox of each trial; a pod with the default limits when absent."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="!has(self.trialResources) || !has(self.environment) || self.environment.kind == 'Pod'",
            message="trialResources means nothing to environment.kind Process; set the run's resources",
        ),
    )


class SuiteSpec(ApiModel):
    """What the model is asked to do."""

    harbor: HarborSuite | None = None
    """Harbor tasks."""
    tool_use: ToolUseSuite | None = None
    """Instead: questions that are answered by calling tools."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(rule="has(self.harbor) != has(self.toolUse)", message="give exactly one of harbor and toolUse"),
    )

    @property
    def makes_pods(self) -> bool:
        """Whether trials run in pods of their own, which the runner needs rights for."""
        return self.harbor is not None and not self.beside_runner

    @property
    def beside_runner(self) -> bool:
        """Whether what trials do runs as processes of the runner's own container, and finds what is in it."""
        environment = self.harbor.environment if self.harbor is not None else None
        return environment is not None and environment.kind is EnvironmentKind.PROCESS

    @property
    def assisted(self) -> bool:
        """Whether an expert may act in the model's place, so that a run is no score of the model."""
        return self.tool_use is not None and self.tool_use.expert.assists

    @property
    def filter_field(self) -> str:
        """The field that says which tasks to run."""
        return "spec.suite.harbor.tasks.exclude" if self.harbor is not None else "spec.suite.toolUse.instances"

    @property
    def claims(self) -> dict[str, str]:
        """Claims that its content lies in, by the field that names them."""
        places = {
            "spec.suite.harbor.dataset.uri": self.harbor.dataset if self.harbor is not None else None,
            "spec.suite.toolUse.environment.uri": self.tool_use.environment if self.tool_use is not None else None,
        }
        held = {field: one.in_claim or one.packed_in_claim for field, one in places.items() if one is not None}
        return {field: source.claim for field, source in held.items() if source is not None}
