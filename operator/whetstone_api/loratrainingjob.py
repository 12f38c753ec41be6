"""LoRATrainingJob: from data to a published, verified adapter."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from whetstone_api.schema import (
    ApiModel,
    DecimalString,
    KeyRef,
    LocalRef,
    PrinterColumn,
    Resource,
    Resources,
    Rule,
    RunToEndSpec,
    SignedDecimalString,
    Status,
    VolumeName,
    condition_column,
)
from whetstone_api.source import Source


class BaseModelSpec(ApiModel):
    """The model to train on."""

    model_server_ref: LocalRef | None = None
    """Take the model that this ModelServer serves, and check the adapter against its capacity."""
    source: Source | None = None
    """The model's folder."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="has(self.modelServerRef) != has(self.source)", message="give exactly one of modelServerRef and source"
        ),
    )


class InitAdapterSpec(ApiModel):
    """A published adapter to go on from; the base model must be the one that it was trained on."""

    source: Source | None = None
    """The adapter's folder."""
    training_job_ref: LocalRef | None = None
    """The LoRATrainingJob that publishes it; waited for."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="has(self.source) != has(self.trainingJobRef)", message="give exactly one of source and trainingJobRef"
        ),
    )


class Method(StrEnum):
    """Training method."""

    SFT = "SFT"


class DatasetSpec(ApiModel):
    """Chat data: JSON lines with `messages`, `conversations`, or `prompt` and `completion`."""

    name: VolumeName
    """Name of the dataset in reports."""
    source: Source | None = None
    """A `.jsonl` file in a claim."""
    config_map_ref: KeyRef | None = None
    """A key of a ConfigMap that holds the JSON lines."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(rule="has(self.source) != has(self.configMapRef)", message="give exactly one of source and configMapRef"),
    )


class LoraSpec(ApiModel):
    """The adapter's shape."""

    rank: Annotated[int, Field(ge=1, le=512)] = 16
    """Rank of the update."""
    alpha: Annotated[int, Field(ge=1, le=4096)] = 32
    """Scaling numerator: the update is scaled by alpha / rank."""
    dropout: DecimalString = "0"
    """Dropout on the adapter's input, 0 to below 1."""
    target_modules: (
        Annotated[list[Annotated[str, Field(min_length=1, max_length=128)]], Field(min_length=1, max_length=64)] | None
    ) = None
    """Module names to adapt; all linear layers when absent."""
    rs_lora: bool = False
    """Scales the update by alpha / sqrt(rank), which keeps high ranks learning (rsLoRA)."""


class LossTarget(StrEnum):
    """Which tokens carry loss."""

    ASSISTANT = "Assistant"
    """All that the assistant says."""
    LAST_TURN = "LastTurn"
    """What the assistant says last."""


class LossSpec(ApiModel):
    """What is learned of a conversation."""

    target: LossTarget = LossTarget.ASSISTANT
    """Which of the assistant's turns."""


class Hyperparameters(ApiModel):
    """How to train."""

    epochs: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Passes over the data; 1 when neither this nor maxSteps is given."""
    max_steps: Annotated[int, Field(ge=1, le=10000000)] | None = None
    """Optimizer steps, instead of epochs."""
    learning_rate: DecimalString = "2e-4"
    """Peak learning rate."""
    batch_size: Annotated[int, Field(ge=1, le=65536)] = 8
    """Rows per optimizer step."""
    micro_batch_size: Annotated[int, Field(ge=1, le=65536)] | None = None
    """Rows per forward pass; batchSize when absent."""
    warmup_ratio: DecimalString = "0.1"
    """Share of the steps in which the learning rate rises."""
    max_length: Annotated[int, Field(ge=16, le=4194304)] | None = None
    """Longest row in tokens; the model's context when absent. A longer row fails the job."""
    seed: Annotated[int, Field(ge=0, le=4294967295)] = 0
    """Seed of shuffling and initialisation."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(rule="!(has(self.epochs) && has(self.maxSteps))", message="give at most one of epochs and maxSteps"),
    )


class WorkspaceSpec(ApiModel):
    """Where the prepared data and the checkpoints lie."""

    claim_name: Annotated[str, Field(min_length=1, max_length=253)]
    """Persistent volume claim; the job uses the folder `<name>-<8 hex of its uid>` in it."""


class CheckpointSpec(ApiModel):
    """When to save."""

    every_steps: Annotated[int, Field(ge=1, le=1000000)] = 50
    """Optimizer steps between checkpoints: at most so many are repeated after a kill."""
    keep: Annotated[int, Field(ge=1, le=100)] = 2
    """Checkpoints kept."""


class TrainingOutput(ApiModel):
    """Where results go."""

    adapter: Source
    """Folder of the adapter; created by the job, never overwritten, never deleted with the object."""
    merged: Source | None = None
    """Folder of the base model with the adapter merged in, in the base's precision; none when absent."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="self.adapter.uri.matches('^pvc://[^/]+/.+')",
            message="output.adapter.uri must name a folder inside the claim, as in pvc://adapters/my-adapter",
        ),
        Rule(
            rule="!has(self.merged) || self.merged.uri.matches('^pvc://[^/]+/.+')",
            message="output.merged.uri must name a folder inside the claim, as in pvc://models/my-model",
        ),
        Rule(
            rule=(
                "!has(self.merged) || !((self.merged.uri + '/').startsWith(self.adapter.uri + '/') ||"
                " (self.adapter.uri + '/').startsWith(self.merged.uri + '/'))"
            ),
            message="output.merged.uri and output.adapter.uri must be two folders, none inside the other",
        ),
    )


class LoRATrainingJobSpec(RunToEndSpec):
    """What to train."""

    mutable = frozenset({"suspend", "ttlSecondsAfterFinished"})

    base_model: BaseModelSpec
    """The model to train on."""
    method: Method = Method.SFT
    """Training method."""
    init_adapter: InitAdapterSpec | None = None
    """An adapter to go on from, instead of a new one; its shape stays."""
    datasets: Annotated[list[DatasetSpec], Field(min_length=1, max_length=16)] = Field(
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    )
    """Training data, all of it used."""
    loss: LossSpec = LossSpec()
    """What is learned of a conversation."""
    lora: LoraSpec = LoraSpec()
    """The adapter's shape."""
    hyperparameters: Hyperparameters = Hyperparameters()
    """How to train."""
    workspace: WorkspaceSpec
    """Where the prepared data and the checkpoints lie."""
    checkpoint: CheckpointSpec = CheckpointSpec()
    """When to save."""
    output: TrainingOutput
    """Where results go."""
    resources: Resources | None = None
    """Resources of the training container."""
    image: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """Trainer image; the operator's default when absent."""
    suspend: bool = False
    """Holds the Jobs back; a running one is stopped after its next checkpoint."""
    active_deadline_seconds: Annotated[int, Field(ge=1, le=31536000)] | None = None
    """Seconds that each Job may take, attempts included."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=31536000)] | None = None
    """Seconds after which the finished Jobs (never this object) are deleted."""


class Lengths(ApiModel):
    """Lengths of the rows that are trained on, in tokens: half, nine in ten, 99 in a hundred are at most so long."""

    p50: int
    """Half of the rows."""
    p90: int
    """Nine rows in ten."""
    p99: int
    """99 rows in a hundred."""


class DatasetReport(ApiModel):
    """What Prepare found."""

    rows: int
    """Rows that are trained on."""
    tokens: int
    """Tokens in them."""
    loss_tokens: int
    """Tokens that carry loss (the assistant's)."""
    longest: int
    """Tokens of the longest row."""
    duplicates: int = 0
    """Rows left out because an earlier one is the same once rendered."""
    lengths: Lengths | None = None
    """Lengths of the rows."""
    recipe_digest: Annotated[str, Field(max_length=71)] | None = None
    """What was asked, as a digest."""


class TrainingProgress(ApiModel):
    """Where the training is; written at most every 30 seconds."""

    phase: Annotated[str, Field(max_length=32)]
    """Validate, Prepare, Train, Verify, Merge or Publish."""
    step: int | None = None
    """Optimizer steps done."""
    max_steps: int | None = None
    """Optimizer steps in all."""
    loss: SignedDecimalString | None = None
    """Latest training loss."""
    eta_seconds: int | None = None
    """Seconds that the training will still take."""
    updated_at: Annotated[str, Field(max_length=64)] | None = None
    """When this was reported, RFC 3339."""


class PublishedAdapter(ApiModel):
    """The result."""

    uri: Annotated[str, Field(max_length=512)]
    """Where it lies."""
    digest: Annotated[str, Field(max_length=71)]
    """Content digest."""
    rank: int
    """Its rank."""
    bytes: int
    """Size of its files."""
    published_at: Annotated[str, Field(max_length=64)] | None = None
    """When it was published, RFC 3339."""


class MergedModel(ApiModel):
    """The base model with the adapter merged in."""

    uri: Annotated[str, Field(max_length=512)]
    """Where it lies."""
    digest: Annotated[str, Field(max_length=71)]
    """Content digest, as `whetstone digest` prints it."""
    bytes: int
    """Size of its files."""


class LoRATrainingJobStatus(Status):
    """What is true of the training."""

    progress: TrainingProgress | None = None
    """Where the training is."""
    dataset: DatasetReport | None = None
    """What Prepare found."""
    attempts: int | None = None
    """Pods of the training Job that were started."""
    adapter: PublishedAdapter | None = None
    """The published adapter."""
    merged: MergedModel | None = None
    """The merged model, where the spec asks for one."""
    metrics: Annotated[dict[str, Annotated[str, Field(max_length=32)]], Field(max_length=32)] | None = None
    """Final figures as decimals: trainLoss, trainSeconds, tokensPerSecond."""
    handled_retry: Annotated[str, Field(max_length=256)] | None = None
    """Value of the retry annotation that the latest attempt answers."""
    started_at: Annotated[str, Field(max_length=64)] | None = None
    """When the first Job started, RFC 3339."""
    finished_at: Annotated[str, Field(max_length=64)] | None = None
    """When the job ended, RFC 3339."""


class LoRATrainingJob(Resource):
    """Trains a LoRA adapter and publishes it with its digest, probe and lineage."""

    kind_name = "LoRATrainingJob"
    plural = "loratrainingjobs"
    short_names = ("lora",)
    columns = (
        condition_column(condition="Ready"),
        condition_column(condition="Ready", field="reason", name="Reason"),
        PrinterColumn(name="Phase", json_path=".status.progress.phase"),
        PrinterColumn(name="Step", type="integer", json_path=".status.progress.step"),
        PrinterColumn(name="Steps", type="integer", json_path=".status.progress.maxSteps"),
        PrinterColumn(name="Adapter", json_path=".status.adapter.uri", priority=1),
        PrinterColumn(name="Age", type="date", json_path=".metadata.creationTimestamp"),
    )

    spec: LoRATrainingJobSpec
    """What to train."""
    status: LoRATrainingJobStatus = LoRATrainingJobStatus()
    """What is true."""
