"""LoRATrainingJob: from data to a published, verified adapter."""

from typing import Annotated, ClassVar

from pydantic import Field

from whetstone_api.pod_template import PodTemplate
from whetstone_api.schema import (
    ApiModel,
    LocalRef,
    PrinterColumn,
    QueueName,
    Resource,
    Resources,
    Rule,
    RunToEndSpec,
    Status,
    condition_column,
)
from whetstone_api.source import HubId, Source
from whetstone_api.training_backend import BACKEND_RULES, Backend
from whetstone_api.training_cost import TrainingCost
from whetstone_api.training_data import DatasetReport, DatasetSpec, LossSpec, PreparationSpec
from whetstone_api.training_distributed import DistributedSpec
from whetstone_api.training_evaluation import EvaluationSpec
from whetstone_api.training_plan import BaseQuantization, ChosenPlan, MemoryEstimate, PlanSpec
from whetstone_api.training_preference import PREFERENCE_RULES, PreferenceSpec
from whetstone_api.training_push import MAX_PUSHES, PushResult
from whetstone_api.training_result import (
    MAX_WARNING,
    MAX_WARNINGS,
    MergedModel,
    PublishedAdapter,
    TrainingOutput,
    TrainingProgress,
)
from whetstone_api.training_settings import CheckpointSpec, Hyperparameters, InitMode, LoraSpec, Method
from whetstone_api.training_stall import StallSpec
from whetstone_api.training_workspace import WorkspaceSpec


class BaseModelSpec(ApiModel):
    """The model to train on."""

    model_server_ref: LocalRef | None = None
    """Take the model that this ModelServer serves, and check the adapter against its capacity."""
    source: Source | None = None
    """The model's folder."""
    hub_id: HubId | None = None
    """Its name on the Hugging Face Hub, `owner/name`: for the adapter's configuration and model card, by which other
    programs find the base. Nothing is read there."""
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
    mode: InitMode = InitMode.CONTINUE
    """Continue: it is trained further, and its shape stays. MergeThenNew: a new one is trained on top of it, and both
    are published as one adapter, whose rank is the sum of theirs."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="has(self.source) != has(self.trainingJobRef)", message="give exactly one of source and trainingJobRef"
        ),
    )


EVALUATION_DATASET = Rule(
    rule=(
        "!has(self.evaluation) || !has(self.evaluation.dataset) || (self.datasets.size() > 1 &&"
        " self.datasets.exists(d, d.name == self.evaluation.dataset))"
    ),
    message="evaluation.dataset must name one of datasets, and another one must be left to learn from",
)


MERGE_NEEDS_FULL_PRECISION = Rule(
    rule="!has(self.initAdapter) || self.initAdapter.mode != 'MergeThenNew' || self.quantization == 'None'",
    message="initAdapter.mode MergeThenNew adds to the base's weights, which quantization rounds; leave one out",
)


class LoRATrainingJobSpec(RunToEndSpec):
    """What to train."""

    mutable = frozenset({"suspend", "ttlSecondsAfterFinished"})
    until_success = frozenset({"activeDeadlineSeconds", "queueName", "resources"})

    base_model: BaseModelSpec
    """The model to train on."""
    method: Method = Method.SFT
    """Training method."""
    backend: Backend = Backend.TRL
    """What does the training: TRL as it is, or with Unsloth's kernels, which need an image of their own."""
    init_adapter: InitAdapterSpec | None = None
    """An adapter to go on from, instead of a new one."""
    datasets: Annotated[list[DatasetSpec], Field(min_length=1, max_length=16)] = Field(
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    )
    """Training data."""
    preparation: PreparationSpec | None = None
    """Bounds on the data."""
    evaluation: EvaluationSpec | None = None
    """Rows that are measured during the training instead of learned; none when absent."""
    loss: LossSpec = LossSpec()
    """What is learned of a conversation."""
    preference: PreferenceSpec | None = None
    """How pairs are compared, for method DPO; its defaults when absent."""
    lora: LoraSpec = LoraSpec()
    """The adapter's shape."""
    hyperparameters: Hyperparameters = Hyperparameters()
    """How to train."""
    distributed: DistributedSpec | None = None
    """By how many processes to train; when absent, one for each GPU that `resources.limits` asks for."""
    quantization: BaseQuantization = BaseQuantization.NONE
    """How the frozen base model is held while its adapter is trained."""
    plan: PlanSpec = PlanSpec()
    """How the training uses its device."""
    workspace: WorkspaceSpec
    """Where the prepared data and the checkpoints lie."""
    checkpoint: CheckpointSpec = CheckpointSpec()
    """When to save."""
    output: TrainingOutput
    """Where results go."""
    resources: Resources | None = None
    """Resources of the containers; only the training asks for devices (`nvidia.com/gpu`) among them."""
    image: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """Trainer image; the operator's default when absent."""
    pod_template: PodTemplate | None = None
    """Laid over the pods: what chooses nodes and devices goes only to those that train."""
    queue_name: QueueName | None = None
    """Kueue's LocalQueue in which each Job waits for quota; the Jobs start at once when absent."""
    stall: StallSpec | None = None
    """When a training that makes no step is taken for hung; twenty times a step, half an hour at least, when absent."""
    suspend: bool = False
    """Holds the Jobs back; a running one is stopped after its next checkpoint."""
    active_deadline_seconds: Annotated[int, Field(ge=1, le=31536000)] | None = None
    """Seconds that each Job may take, attempts included."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=31536000)] | None = None
    """Seconds after which the finished Jobs (never this object) are deleted."""
    rules: ClassVar[tuple[Rule, ...]] = (
        EVALUATION_DATASET,
        MERGE_NEEDS_FULL_PRECISION,
        *PREFERENCE_RULES,
        *BACKEND_RULES,
    )


class LoRATrainingJobStatus(Status):
    """What is true of the training."""

    progress: TrainingProgress | None = None
    """Where the training is."""
    dataset: DatasetReport | None = None
    """What Prepare found."""
    estimate: MemoryEstimate | None = None
    """What the training is estimated to take of one device; none where the model's shape is not known."""
    cost: TrainingCost | None = None
    """What the training costs; only where the operator's price table names its device."""
    plan: ChosenPlan | None = None
    """How the training uses its device, and why so."""
    memory_kills: int | None = None
    """Pods of the training that the kernel killed for want of memory."""
    stalls: int | None = None
    """How often the training has hung and was started again."""
    attempts: int | None = None
    """Pods of the training Job that were started."""
    adapter: PublishedAdapter | None = None
    """The published adapter."""
    merged: MergedModel | None = None
    """The merged model, where the spec asks for one."""
    pushes: Annotated[list[PushResult], Field(max_length=MAX_PUSHES)] | None = Field(
        default=None, json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    )
    """What lies at the places of `output.push`."""
    metrics: Annotated[dict[str, Annotated[str, Field(max_length=32)]], Field(max_length=32)] | None = None
    """Final figures as decimals: trainLoss, trainSeconds, tokensPerSecond; with DPO rewardAccuracy, rewardMargin."""
    warnings: Annotated[list[Annotated[str, Field(max_length=MAX_WARNING)]], Field(max_length=MAX_WARNINGS)] | None = (
        None
    )
    """What went wrong beside the training and changed nothing of its result, such as a tracker that did not answer."""
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
        PrinterColumn(name="Percent", type="integer", json_path=".status.progress.percent"),
        PrinterColumn(name="Step", type="integer", json_path=".status.progress.step"),
        PrinterColumn(name="Steps", type="integer", json_path=".status.progress.maxSteps"),
        PrinterColumn(name="Adapter", json_path=".status.adapter.uri", priority=1),
        PrinterColumn(name="Age", type="date", json_path=".metadata.creationTimestamp"),
    )

    spec: LoRATrainingJobSpec
    """What to train."""
    status: LoRATrainingJobStatus = LoRATrainingJobStatus()
    """What is true."""
