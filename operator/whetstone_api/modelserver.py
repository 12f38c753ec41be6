"""ModelServer: a vLLM server with hot LoRA adapters and stable aliases."""

from typing import Annotated, ClassVar

from pydantic import Field

from whetstone_api.access import ApiKeySpec, LimitsSpec
from whetstone_api.aliases import AliasSpec, AliasStatus
from whetstone_api.capacity import AdapterCapacity, CapacityStatus
from whetstone_api.engine import EngineSpec
from whetstone_api.pod_template import PodTemplate
from whetstone_api.sampling import DefaultSampling
from whetstone_api.schema import (
    ApiModel,
    LocalRef,
    PrinterColumn,
    Resource,
    Resources,
    Rule,
    ServedName,
    Status,
    VolumeName,
    condition_column,
)
from whetstone_api.source import PinnedSource, SecretRef


class ModelCache(ApiModel):
    """Where fetched models stay when pods go."""

    claim_name: Annotated[str, Field(min_length=1, max_length=253)]
    """Persistent volume claim that holds them; servers and pods may share it."""


class ImageVolume(ApiModel):
    """An image of the container runtime, mounted as it is."""

    sub_path: Annotated[str, Field(max_length=253, pattern=r"^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$")] | None = None
    """Folder of the model in the image; its root when absent."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="!has(self.subPath) || !self.subPath.matches('(^|/)[.][.]?(/|$)')",
            message="subPath must not contain . or .. as a path segment; write the plain path inside the image",
        ),
    )


class ModelSpec(ApiModel):
    """The base model."""

    source: PinnedSource | None = None
    """Where the model's folder lies (`config.json`, safetensors, tokenizer)."""
    training_job_ref: LocalRef | None = None
    """The LoRATrainingJob whose merged model is served, instead of a source."""
    served_name: ServedName
    """The name that clients use for the base model."""
    cache: ModelCache | None = None
    """Keeps what was fetched; without it, every new pod fetches the model again."""
    image_volume: ImageVolume | None = None
    """Mounts the `oci://` image as a volume, which the node pulls and shares like any image, instead of fetching it."""
    default_sampling: DefaultSampling | None = None
    """Sampling of requests that do not say it themselves."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="has(self.source) != has(self.trainingJobRef)",
            message="give exactly one of source and trainingJobRef",
        ),
        Rule(
            rule="!has(self.source) || !self.source.uri.matches('^(s3|https)://') || has(self.source.digest)",
            message=(
                "source.digest is needed with s3:// and https://; `whetstone digest FOLDER` prints the digest of a"
                " model's folder"
            ),
        ),
        Rule(
            rule="!has(self.source) || !self.source.uri.startsWith('pvc://') || !has(self.source.digest)",
            message="source.digest of a model has no use with pvc://; leave it out",
        ),
        Rule(
            rule="!has(self.cache) || (has(self.source) && !self.source.uri.startsWith('pvc://'))",
            message="cache has no use with pvc:// and trainingJobRef, which are read where they lie; leave it out",
        ),
        Rule(
            rule="!has(self.imageVolume) || (has(self.source) && self.source.uri.startsWith('oci://'))",
            message="imageVolume needs a source.uri of oci://registry/repo@sha256:…",
        ),
        Rule(
            rule=(
                "!has(self.imageVolume) || !(has(self.cache) || (has(self.source) &&"
                " (has(self.source.digest) || has(self.source.secretRef))))"
            ),
            message=(
                "with imageVolume the node pulls and keeps the image: leave out cache, source.digest (the uri pins it)"
                " and source.secretRef (the pod's imagePullSecrets serve)"
            ),
        ),
    )

    @property
    def place(self) -> PinnedSource:
        """Where the model lies, also one that a training job has published.

        Raises:
            RuntimeError: The reference to the job is not resolved yet.
        """
        if self.source is None:
            raise RuntimeError("spec.model.trainingJobRef is resolved before the model's place is asked for")
        return self.source


MAX_ADAPTERS = 64
"""Most adapters of a server, named and selected."""


class AdapterStore(ApiModel):
    """A volume, or a Secret for places outside the cluster, that adapters may come from."""

    name: VolumeName
    """Name of the store."""
    claim_name: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """Persistent volume claim that holds adapters; mounted read-only at start."""
    secret_ref: SecretRef | None = None
    """Secret that adapters name in `source.secretRef`; mounted into the sidecar at start."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(rule="has(self.claimName) != has(self.secretRef)", message="give exactly one of claimName and secretRef"),
    )


class AdapterSpec(ApiModel):
    """An adapter to serve."""

    name: ServedName
    """The name that clients use; it serves the adapter's current version."""
    source: PinnedSource | None = None
    """The adapter's folder, in a claim or elsewhere."""
    training_job_ref: LocalRef | None = None
    """The LoRATrainingJob that publishes it."""
    required: bool = False
    """Whether a new pod waits for this adapter before it becomes Ready."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="has(self.source) != has(self.trainingJobRef)",
            message="give exactly one of source and trainingJobRef",
        ),
        Rule(
            rule="!has(self.source) || has(self.source.digest)",
            message="source.digest is needed; `whetstone digest FOLDER` prints the digest of an adapter's folder",
        ),
    )


class AdapterSelector(ApiModel):
    """A label selector over LoRATrainingJobs of the namespace."""

    match_labels: Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(min_length=1, max_length=16)]
    """Labels that a job must carry, all of them."""


class StartupSpec(ApiModel):
    """How long a start may take."""

    timeout_seconds: Annotated[int, Field(ge=30, le=86400)] = 1800
    """Seconds until an engine that is not healthy is restarted and the server told StartupTimeout."""


class DrainSpec(ApiModel):
    """How a pod that is told to go treats the requests that it is answering."""

    seconds: Annotated[int, Field(ge=0, le=3600)] = 60
    """Longest time that requests in flight get to end. Set it above your longest streams."""


class ModelServerSpec(ApiModel):
    """What to serve."""

    model: ModelSpec
    """The base model."""
    engine: EngineSpec = EngineSpec()
    """The engine that serves it."""
    # Not optional: the scale subresource answers with an error where the field is absent.
    replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    """Wanted pods; `kubectl scale` and autoscalers set it."""
    resources: Resources | None = None
    """Resources of the engine's container."""
    pod_template: PodTemplate | None = None
    """Laid over the engine pods: placement, labels, pull secrets, volumes, containers; a change restarts the engine."""
    adapter_stores: Annotated[list[AdapterStore], Field(max_length=16)] | None = Field(
        default=None, json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    )
    """Claims that adapters load from, and Secrets that others need; a change restarts the engine."""
    adapters: Annotated[list[AdapterSpec], Field(max_length=MAX_ADAPTERS)] | None = Field(
        default=None, json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    )
    """Adapters to load, hot."""
    adapter_selector: AdapterSelector | None = None
    """LoRATrainingJobs whose published adapters are served too, under the jobs' names."""
    adapter_capacity: AdapterCapacity = AdapterCapacity()
    """What the engine reserves for adapters; a change restarts it."""
    aliases: Annotated[list[AliasSpec], Field(max_length=32)] | None = Field(
        default=None, json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    )
    """Stable names for clients."""
    startup: StartupSpec = StartupSpec()
    """How long a start may take."""
    api_keys: Annotated[list[ApiKeySpec], Field(min_length=1, max_length=64)] | None = Field(
        default=None, json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    )
    """Keys that clients need, any one of them; absent: no key is needed."""
    limits: LimitsSpec | None = None
    """What one replica takes at most."""
    drain: DrainSpec = DrainSpec()
    """How a pod that is told to go treats the requests that it is answering."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="self.model.servedName == oldSelf.model.servedName",
            message="model.servedName is immutable; create another ModelServer for another name",
        ),
        Rule(
            rule="!has(self.adapters) || self.adapters.all(a, a.name != self.model.servedName)",
            message="an adapter must not have the base's servedName; rename the adapter",
        ),
        Rule(
            rule="!has(self.aliases) || self.aliases.all(a, a.name != self.model.servedName)",
            message="an alias must not have the base's servedName; rename the alias",
        ),
        Rule(
            rule=(
                "!has(self.aliases) || !has(self.adapters) ||"
                " self.aliases.all(a, self.adapters.all(b, a.name != b.name))"
            ),
            message="aliases and adapters share one name space; rename one of the two",
        ),
        Rule(
            rule=(
                "!has(self.aliases) || self.aliases.all(a, !has(a.targets) || a.targets.all(t,"
                " t.adapter == self.model.servedName || (has(self.adapters) &&"
                " self.adapters.exists(b, b.name == t.adapter))))"
            ),
            message="an alias's target must be one of spec.adapters or the base's servedName",
        ),
    )


class AdapterStatus(ApiModel):
    """An adapter as the pods report it."""

    name: Annotated[str, Field(max_length=64)]
    """Name in the spec."""
    served_name: Annotated[str, Field(max_length=64)] | None = None
    """Immutable name of the version: `name--<8 hex of its digest>`."""
    digest: Annotated[str, Field(max_length=71)] | None = None
    """Content digest of the version."""
    source: Annotated[str, Field(max_length=512)] | None = None
    """Where it came from."""
    rank: int | None = None
    """Its rank; absent until a pod has told it."""
    loaded_replicas: int = 0
    """Ready pods whose engine lists it."""
    effective_replicas: int = 0
    """Ready pods whose engine's output it changes as recorded."""
    effective_since: Annotated[str, Field(max_length=64)] | None = None
    """When it became effective on every ready pod, RFC 3339."""
    reason: Annotated[str, Field(max_length=64)] | None = None
    """Why it is not effective everywhere."""
    message: Annotated[str, Field(max_length=1024)] | None = None
    """The same for people."""


class ResolvedSource(ApiModel):
    """What a branch or tag of a hub named when it was first seen in the spec."""

    uri: Annotated[str, Field(max_length=512)]
    """The place as the spec names it."""
    digest: Annotated[str, Field(max_length=71)] | None = None
    """The digest that the spec gives with it; another one looks the revision up anew."""
    resolved: Annotated[str, Field(max_length=512)]
    """The same place at its commit (40 hex digits): what pods fetch."""


class AdapterFailure(ApiModel):
    """What one pod says of one adapter."""

    pod: Annotated[str, Field(max_length=253)]
    """Name of the pod."""
    adapter: Annotated[str, Field(max_length=64)]
    """Name of the adapter."""
    reason: Annotated[str, Field(max_length=64)]
    """Machine-readable cause."""
    message: Annotated[str, Field(max_length=1024)]
    """Sentence for people."""


class ServedModel(ApiModel):
    """The base model that `spec.model.trainingJobRef` stands for."""

    training_job: Annotated[str, Field(max_length=253)]
    """The job that made it."""
    source: Annotated[str, Field(max_length=512)]
    """Where it lies."""
    digest: Annotated[str, Field(max_length=71)]
    """Content digest that the job published."""


class ModelServerStatus(Status):
    """What is true of the server."""

    replicas: int | None = None
    """Pods that exist."""
    ready_replicas: int | None = None
    """Pods that are Ready."""
    selector: Annotated[str, Field(max_length=512)] | None = None
    """Label selector of the pods, for the scale subresource."""
    url: Annotated[str, Field(max_length=512)] | None = None
    """Base URL of the OpenAI-compatible API inside the cluster."""
    model: ServedModel | None = None
    """The merged model that is served, with `spec.model.trainingJobRef`."""
    adapters: Annotated[list[AdapterStatus], Field(max_length=MAX_ADAPTERS)] | None = None
    """Adapters as the pods report them."""
    capacity: CapacityStatus | None = None
    """What engines reserve for adapters from their next start on."""
    sources: Annotated[list[ResolvedSource], Field(max_length=65)] | None = None
    """Commits of the `hf://` places that the spec names by branch or tag."""
    failures: Annotated[list[AdapterFailure], Field(max_length=10)] | None = None
    """The first ten failures, by pod."""
    aliases: Annotated[list[AliasStatus], Field(max_length=32)] | None = None
    """What each alias serves."""


class ModelServer(Resource):
    """A vLLM server whose LoRA adapters load without a restart and whose aliases move on evidence."""

    kind_name = "ModelServer"
    plural = "modelservers"
    short_names = ("msrv",)
    columns = (
        condition_column(condition="Ready"),
        condition_column(condition="Ready", field="reason", name="Reason"),
        PrinterColumn(name="Model", json_path=".spec.model.servedName"),
        PrinterColumn(name="Replicas", type="integer", json_path=".status.readyReplicas"),
        PrinterColumn(name="URL", json_path=".status.url", priority=1),
        PrinterColumn(name="Age", type="date", json_path=".metadata.creationTimestamp"),
    )
    scale = {  # noqa: RUF012 - a constant of the class
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }

    spec: ModelServerSpec
    """What to serve."""
    status: ModelServerStatus = ModelServerStatus()
    """What is true."""
