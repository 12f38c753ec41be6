"""Configuration of our Jobs: the operator writes it into a ConfigMap, the pod reads it at `CONFIG_PATH`.

All places are paths inside the container; the operator has resolved references and mounted what they need.
"""

from enum import StrEnum

from pydantic import Field

from whetstone_api.benchmark_agent import AgentSpec, SamplingSpec
from whetstone_api.benchmark_collect import CollectSpec
from whetstone_api.benchmark_discipline import DisciplineRules
from whetstone_api.benchmark_judge import JudgeSpec
from whetstone_api.benchmark_result import TokenPrices
from whetstone_api.benchmark_suite import HarborSuite
from whetstone_api.benchmark_target import EngineIdentity
from whetstone_api.benchmark_tooluse import ToolUseSuite
from whetstone_api.training_backend import Backend
from whetstone_api.training_data import LossSpec, PreparationSpec, RowFilter
from whetstone_api.training_distributed import World
from whetstone_api.training_evaluation import EvaluationSpec
from whetstone_api.training_plan import BaseQuantization, PlanSpec
from whetstone_api.training_preference import PreferenceSpec, ReferencePlaces
from whetstone_api.training_push import PushTarget
from whetstone_api.training_settings import CheckpointSpec, Hyperparameters, InitMode, LoraSpec, Method
from whetstone_api.vocabulary import AGENT_SOCKET
from whetstone_api.wire import WireModel

EXIT_USER_ERROR = 65
"""The input is wrong (`EX_DATAERR` of sysexits.h): the Job fails at once and is not retried."""
EXIT_STOPPED = 143
"""SIGTERM ended the program (128 + 15), and what it has done is saved: the pod is replaced and counts as no failure."""
STOP_SECONDS = 120
"""Seconds that a pod of ours has between SIGTERM and its end: for a training, the current step and a checkpoint."""
METRICS_PORT = 9090
"""Where the first pod of a training shows its series."""
METRICS_PORT_NAME = "metrics"
"""Name of that port, by which a PodMonitor selects pods."""


class ObjectIdentity(WireModel):
    """The object that a Job works for."""

    kind: str
    namespace: str
    name: str
    uid: str


class DatasetFile(WireModel):
    """A dataset as a file."""

    name: str
    path: str
    field: str
    """Where the user named it, for messages: `spec.datasets[0].source.uri (pvc://data/train.jsonl)`."""
    uri: str | None = None
    """Where it is fetched from; None for a file that is there."""
    secret_path: str | None = None
    """Folder of the Secret with what that place asks for."""
    digest: str | None = None
    """`sha256:…` that it must have; None for any."""
    collected_uri: str | None = None
    """Place of the rows that a BenchmarkRun collected, when it was resolved."""
    weight: str | None = None
    filter: RowFilter | None = None


class FetchedContent(StrEnum):
    """What a fetched folder holds."""

    TASKS = "Tasks"
    """A task set."""
    AGENT = "Agent"
    """The code of a user's agent."""
    ENVIRONMENT = "Environment"
    """What questions are about: documents, an API's document and instances."""


class TrainingConfig(WireModel):
    """What the stages of `whetstone_trainer` read: prepare, train, merge."""

    backend: Backend = Backend.TRL
    image: str | None = None
    """The image that trains, for lineage."""

    object: ObjectIdentity
    report_url: str
    """Operator's endpoint for this object's reports."""
    base_model_path: str
    base_model_source: str
    """URI of the base model, for lineage and `base_model_name_or_path`."""
    base_model_hub_id: str | None = None
    """`owner/name` of the base model on the Hugging Face Hub: what `base_model_name_or_path` says instead."""
    init_adapter_path: str | None = None
    """Folder of the adapter to go on from; None for a new one."""
    init_adapter_source: str | None = None
    """Its URI."""
    init_adapter_mode: InitMode = InitMode.CONTINUE
    stall_seconds: float | None = None
    """Seconds without a step after which the operator starts the training again; None for the usual limit."""
    served_rank: int | None = None
    """Highest rank that the ModelServer of the base model loads; None where none is named, or it loads any."""
    datasets: list[DatasetFile]
    preparation: PreparationSpec = PreparationSpec()
    evaluation: EvaluationSpec | None = None
    method: Method = Method.SFT
    loss: LossSpec = LossSpec()
    preference: PreferenceSpec | None = None
    reference: ReferencePlaces | None = None
    """Where the reference lies that `preference` names; None for the default one."""
    lora: LoraSpec
    hyperparameters: Hyperparameters
    quantization: BaseQuantization = BaseQuantization.NONE
    plan: PlanSpec = PlanSpec()
    on_accelerator: bool = False
    """Whether the training asks for one; Prepare, which estimates its memory, runs without."""
    checkpoint: CheckpointSpec
    world: World = World()
    """The processes that train together."""
    killed_pods: list[str] = Field(default_factory=list)
    """Uids of the pods of this training that were killed for want of memory, as far as the operator knows."""
    workspace_path: str
    """Folder of this object in the workspace claim: prepared data in `prepared/`, checkpoints in `checkpoints/`."""
    output_path: str
    output_uri: str
    merged_path: str | None = None
    """Folder of the merged model; None where none is asked for."""
    merged_uri: str | None = None
    pushes: list[PushTarget] = Field(default_factory=list)
    """Where adapter and merged model are copied to."""


class FetchedFolder(WireModel):
    """A folder that is brought into a runner's pod before the runner starts."""

    what: FetchedContent
    path: str
    """Where it shall be."""
    field: str
    """Where the user named it, for messages: `spec.suite.harbor.dataset (s3://sets/basic)`."""
    uri: str | None = None
    """Where it is fetched from; None for an archive that is mounted."""
    archive_path: str | None = None
    """That archive."""
    secret_path: str | None = None
    """Folder of the Secret with what the place asks for."""
    digest: str | None = None
    """`sha256:…` that it must have; None for any."""
    record_path: str
    """File on the volume of the results that says what the first pod of the attempt fetched."""


class RunConfig(WireModel):
    """What `whetstone_agent` reads of a run, whatever its suite."""

    object: ObjectIdentity
    report_url: str
    server_url: str
    """Base URL of the OpenAI-compatible API, ending in `/v1`."""
    served_name: str
    """Version to ask for: `name--<8 hex>`, or the base's served name."""
    adapter: str | None = None
    """Adapter's name; absent for the base."""
    adapter_digest: str | None = None
    engine: EngineIdentity | None = None
    """The engines at the start of the run."""
    engine_check_url: str | None = None
    """Where the operator says whether they are still the same; None where nobody can."""
    turn_url: str | None = None
    """Where the operator says whether it is the run's turn to measure the server; None where it started with it."""
    adapter_path: str | None = None
    """Folder of the adapter, read-only; its lineage lists the tasks in its training data. Absent for the base."""
    adapter_task_digests: list[str] = Field(default_factory=list)
    """Digests of the tasks in the adapter's training data, where known without its lineage."""
    agent: AgentSpec
    agent_socket: str = AGENT_SOCKET
    """Where the container of a user's agent is reached."""
    sampling: SamplingSpec
    attempts: int
    pass_at_k: list[int] | None = None
    """Each k for which pass@k is told; 1 and `attempts` when absent."""
    prices: TokenPrices | None = None
    collect: CollectSpec | None = None
    discipline: DisciplineRules | None = None
    judge: JudgeSpec | None = None
    judge_url: str | None = None
    """Base URL of the judge's API, ending in `/v1`."""
    concurrency: int
    shards: int = 1
    """Pods that share the work; each knows its index from the Job."""
    output_path: str
    output_uri: str
    fetched: list[FetchedFolder] = Field(default_factory=list)
    """What is fetched before the runner starts."""
    maximum_error_rate: str = "0.1"
    """Share of void trials above which the run is not valid."""
    baseline_name: str | None = None
    baseline_path: str | None = None
    """Folder of the baseline's results."""
    baseline_invalid: str | None = None
    """Why the baseline is not valid, as its object says; empty where that says that it is, absent where it says
    neither."""


class BenchmarkConfig(RunConfig):
    """A run of Harbor tasks."""

    suite: HarborSuite
    dataset_path: str
    verdicts_path: str | None = None
    """Folder of the verdicts on the tasks' own solutions; None where the suite asks for none."""
    verdicts_uri: str | None = None
    agent_path: str | None = None
    """Folder of the user's agent, read-only; absent for agents by name."""


class ToolUseConfig(RunConfig):
    """A run of questions that are answered by calling tools."""

    tool_use: ToolUseSuite
    environment_path: str
    scorer_url: str | None = None
    """Base URL of the API of the model that compares answers, ending in `/v1`; absent where none does."""
    overseer_url: str | None = None
    """The same of the overseer."""
    witness_url: str | None = None
    """The same of the expert's witness."""
