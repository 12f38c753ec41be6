"""Children of a LoRATrainingJob: the configuration and the Jobs Prepare, Train and, where asked for, Merge.

The Job Merge also copies what is published to the places of `output.push`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from whetstone_api.jobs import METRICS_PORT, METRICS_PORT_NAME, ObjectIdentity, TrainingConfig
from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.schema import Resources
from whetstone_api.source import FileSource, Source
from whetstone_api.trainer_status import TOKEN_VARIABLE, URL_VARIABLE
from whetstone_api.training_backend import Backend
from whetstone_api.training_data import PreparationSpec
from whetstone_api.training_preference import ReferencePlaces
from whetstone_api.training_settings import InitMode
from whetstone_api.vocabulary import CLAIMS_ROOT, CONFIG_PATH, REPORT_TOKEN_PATH, Annotation, Label, Reason

from whetstone_operator.resources.datasets import dataset_claims, dataset_files, dataset_secrets
from whetstone_operator.resources.devices import asks_for_devices, is_device
from whetstone_operator.resources.distributed import (
    across_nodes,
    communication_environment,
    rendezvous_service,
    world_of,
)
from whetstone_operator.resources.job_pod import JobPlan, build_config_map, build_job, job_hash, report_url
from whetstone_operator.resources.pushes import push_claims, push_secrets, push_targets
from whetstone_operator.resources.training_pods import with_pod_template
from whetstone_operator.resources.workspace import workspace_claim
from whetstone_operator.runtime.outcome import Stalled
from whetstone_operator.settings import Settings

PREPARE = "prepare"
TRAIN = "train"
MERGE = "merge"
BACKOFF_LIMITS = {PREPARE: 2, TRAIN: 6, MERGE: 2}
"""Failed pods until a stage gives up; a training pod that dies costs only the steps since its checkpoint."""
COMPONENT = "training"
NO_GPU = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
"""Where NVIDIA's runtime is a node's default, a container that asks for no GPU would see all of them."""


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """A training with its references resolved.

    Args:
        job: The object.
        base: Folder of the base model.
        init: Folder of the adapter to go on from.
        settings: What the administrator decided.
        retry: The retry request that this attempt answers.
        reference: Folder of the adapter of the reference.
        stalls: How often the training has hung.
        collected: Rows of BenchmarkRuns, by the name of their dataset.
        served_rank: Highest rank that the ModelServer of the base model loads; None for no limit known.
        killed_pods: Uids of the pods of earlier attempts that were killed for want of memory.
    """

    job: LoRATrainingJob
    base: Source
    init: Source | None
    settings: Settings
    retry: str | None
    reference: Source | None = None
    stalls: int = 0
    collected: Mapping[str, FileSource] = field(default_factory=dict)
    served_rank: int | None = None
    killed_pods: Sequence[str] = ()


def config_name(job: LoRATrainingJob) -> str:
    """Return the name of the ConfigMap with the configuration."""
    return f"{job.metadata.name}-config"


def stage_job_name(job: LoRATrainingJob, *, stage: str, retry: str | None) -> str:
    """Return the name of a stage's Job, as in `t-train-1f2e3d4c`."""
    return f"{job.metadata.name}-{stage}-{job_hash(job, retry)}"


def training_config(plan: TrainingPlan) -> TrainingConfig:
    """Return what the trainer reads."""
    job = plan.job
    folder = f"{job.metadata.name}-{job.metadata.uid.replace('-', '')[:8]}"
    workspace = f"{CLAIMS_ROOT}/{workspace_claim(job)}/{folder}"
    return TrainingConfig(
        backend=job.spec.backend,
        image=trainer_image(plan, TRAIN),
        object=ObjectIdentity(
            kind=job.kind_name, namespace=job.metadata.namespace, name=job.metadata.name, uid=job.metadata.uid
        ),
        report_url=report_url(job, plan.settings),
        base_model_path=plan.base.mount_path,
        base_model_source=plan.base.uri,
        base_model_hub_id=job.spec.base_model.hub_id,
        init_adapter_path=plan.init.mount_path if plan.init else None,
        init_adapter_source=plan.init.uri if plan.init else None,
        init_adapter_mode=job.spec.init_adapter.mode if job.spec.init_adapter else InitMode.CONTINUE,
        served_rank=plan.served_rank,
        stall_seconds=job.spec.stall.minutes * 60.0 if job.spec.stall else None,
        datasets=dataset_files(job, workspace=workspace, collected=plan.collected),
        preparation=job.spec.preparation or PreparationSpec(),
        evaluation=job.spec.evaluation,
        method=job.spec.method,
        loss=job.spec.loss,
        preference=job.spec.preference,
        reference=reference_places(plan),
        lora=job.spec.lora,
        hyperparameters=job.spec.hyperparameters,
        quantization=job.spec.quantization,
        plan=job.spec.plan,
        on_accelerator=asks_for_devices(job.spec.resources.to_wire() if job.spec.resources else None),
        checkpoint=job.spec.checkpoint,
        world=world_of(job),
        killed_pods=list(plan.killed_pods),
        workspace_path=workspace,
        output_path=job.spec.output.adapter.mount_path,
        output_uri=job.spec.output.adapter.uri,
        merged_path=job.spec.output.merged.mount_path if job.spec.output.merged else None,
        merged_uri=job.spec.output.merged.uri if job.spec.output.merged else None,
        pushes=push_targets(job),
    )


def reference_model(job: LoRATrainingJob) -> Source | None:
    """Return the folder of the model that preferences are measured against; None for the base model."""
    asked = job.spec.preference.reference if job.spec.preference else None
    return asked.model if asked else None


def reference_places(plan: TrainingPlan) -> ReferencePlaces | None:
    """Return where the reference lies; None for the default one."""
    model, adapter = reference_model(plan.job), plan.reference
    if model is None and adapter is None:
        return None
    return ReferencePlaces(
        model_path=model.mount_path if model else None,
        model_source=model.uri if model else None,
        adapter_path=adapter.mount_path if adapter else None,
        adapter_source=adapter.uri if adapter else None,
    )


def training_config_map(plan: TrainingPlan) -> dict[str, Any]:
    """Return the ConfigMap of the configuration."""
    config = training_config(plan).to_json()
    return build_config_map(plan.job, name=config_name(plan.job), component=COMPONENT, config=config)


def claims(plan: TrainingPlan, stage: str) -> dict[str, bool]:
    """Return whether each claim that the pods of a stage mount is writable, by name."""
    spec = plan.job.spec
    adapter, merged = spec.output.adapter.claim, spec.output.merged
    sources = (plan.init, plan.reference, reference_model(plan.job), *dataset_claims(plan.job, plan.collected))
    data = [source.claim for source in sources if source is not None]
    read, written = {
        # Whether the adapter is published already is looked up before anything is trained.
        PREPARE: ([*data, adapter], [workspace_claim(plan.job)]),
        TRAIN: (data, [workspace_claim(plan.job), adapter]),
        MERGE: ([adapter], [merged.claim] if merged else []),
    }[stage]
    return dict.fromkeys([plan.base.claim, *read], False) | dict.fromkeys(written, True)


def stage_resources(resources: Resources | None, stage: str) -> Resources | None:
    """Return what a stage's container asks for: only training holds accelerators.

    Args:
        resources: What the spec says.
        stage: `prepare`, `train` or `merge`.
    """
    if resources is None or stage == TRAIN:
        return resources
    requests, limits = (
        {name: amount for name, amount in (given or {}).items() if not is_device(name)} or None
        for given in (resources.requests, resources.limits)
    )
    return Resources(requests=requests, limits=limits)


def trainer_image(plan: TrainingPlan, stage: str) -> str:
    """Return the image of a stage; Unsloth's own is used where its kernels are.

    Raises:
        Stalled: The job asks for Unsloth, and nobody has named an image with it.
    """
    spec, settings = plan.job.spec, plan.settings
    if spec.image:
        return spec.image
    if spec.backend is not Backend.UNSLOTH:
        return settings.trainer_image
    if not settings.unsloth_image:
        raise Stalled(
            Reason.INVALID_SPEC,
            "spec.backend: Unsloth needs an image of its own and this operator knows none; set spec.image in a new job,"
            " or images.unsloth in the chart's values (docs/loratrainingjob.md says how it is built)",
        )
    return settings.unsloth_image if stage == TRAIN else settings.trainer_image


def trainer_status_variables(plan: TrainingPlan) -> tuple[dict[str, str], ...]:
    """Return the variables by which a trainer of somebody else finds where to report; ours has its configuration."""
    job = plan.job
    url = plan.settings.trainer_status_url(plural=job.plural, namespace=job.metadata.namespace, name=job.metadata.name)
    return ({"name": URL_VARIABLE, "value": url}, {"name": TOKEN_VARIABLE, "value": REPORT_TOKEN_PATH})


def stage_environment(plan: TrainingPlan, stage: str) -> tuple[Mapping[str, Any], ...]:
    """Return the variables of a stage's container beside those of every Job."""
    if stage != TRAIN:
        return (NO_GPU,)
    return (*communication_environment(plan.job), *trainer_status_variables(plan))


def training_job(plan: TrainingPlan, stage: str) -> dict[str, Any]:
    """Return the Job of a stage (`prepare`, `train` or `merge`).

    Raises:
        OverlayError: `spec.podTemplate` says what users may not decide.
    """
    job, datasets = plan.job, plan.job.spec.datasets
    manifest = build_job(
        JobPlan(
            owner=job,
            name=stage_job_name(job, stage=stage, retry=plan.retry),
            settings=plan.settings,
            component=COMPONENT,
            labels={str(Label.STAGE): stage},
            annotations={str(Annotation.STALLS): str(plan.stalls)} if stage == TRAIN and plan.stalls else {},
            image=trainer_image(plan, stage),
            arguments=(stage, "--config", CONFIG_PATH),
            config_map=config_name(job),
            claims={**claims(plan, stage), **(push_claims(job) if stage == MERGE else {})},
            secrets=push_secrets(job) if stage == MERGE else dataset_secrets(job),
            config_maps=() if stage == MERGE else tuple({d.config_map_ref.name for d in datasets if d.config_map_ref}),
            resources=stage_resources(job.spec.resources, stage),
            environment=stage_environment(plan, stage),
            ports={METRICS_PORT_NAME: METRICS_PORT} if stage == TRAIN else {},
            backoff_limit=BACKOFF_LIMITS[stage],
            deadline_seconds=job.spec.active_deadline_seconds,
            queue=job.spec.queue_name,
        )
    )
    if stage == TRAIN:
        manifest = across_nodes(manifest, nodes=world_of(job).nodes)
    return with_pod_template(manifest, job.spec.pod_template, trains=stage == TRAIN)


def training_service(plan: TrainingPlan) -> dict[str, Any] | None:
    """Return the Service by which the pods of the stage Train find each other; None for one pod."""
    name = stage_job_name(plan.job, stage=TRAIN, retry=plan.retry)
    return rendezvous_service(plan.job, name=name, component=COMPONENT)
