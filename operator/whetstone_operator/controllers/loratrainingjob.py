"""Reconciles LoRATrainingJobs: resolve, check, Prepare, Train, Merge, report what is published."""

import asyncio
import json
from dataclasses import replace
from typing import Any

from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.modelserver import ModelServer
from whetstone_api.reports import TerminationReport
from whetstone_api.source import FileSource, Source
from whetstone_api.training_cost import TrainingCost
from whetstone_api.training_data import DatasetReport
from whetstone_api.training_plan import ChosenPlan, MemoryEstimate
from whetstone_api.training_result import (
    MAX_WARNING,
    MAX_WARNINGS,
    MergedModel,
    PublishedAdapter,
    TrainingProgress,
)
from whetstone_api.vocabulary import ConditionType, Reason

from whetstone_operator.controllers.datasets import (
    configured_collected,
    dataset_claim_fields,
    require_datasets,
    resolve_collected,
)
from whetstone_operator.controllers.init_adapter import resolve_init_adapter, resolve_reference_adapter
from whetstone_operator.controllers.job_changes import follow_changes
from whetstone_operator.controllers.job_outcome import attempts, is_finished
from whetstone_operator.controllers.memory_kills import hand_on_kills, kills_before
from whetstone_operator.controllers.publication import hear_publication, withdraw_publication
from whetstone_operator.controllers.pushes import (
    keep_what_is_done,
    push_claim_fields,
    require_push_secrets,
    take_pushes,
)
from whetstone_operator.controllers.references import require_authorities, require_claims, require_server
from whetstone_operator.controllers.run_to_end import (
    JobFailed,
    accept_retry,
    conclude,
    due_report,
    find_job,
    finished_report,
    follow_suspension,
    handled_retry,
    has_ended,
    read_result,
    rest,
)
from whetstone_operator.controllers.stall import watch_steps
from whetstone_operator.controllers.training_cost import estimated_cost, training_cost
from whetstone_operator.controllers.training_pods import require_pods
from whetstone_operator.controllers.training_progress import hear_plan, progress_of
from whetstone_operator.controllers.workspace import require_workspace
from whetstone_operator.kinds import CONFIG_MAP, POD, Key
from whetstone_operator.resources.distributed import JOB_NAME_LABEL, world_problem
from whetstone_operator.resources.job_pod import CONFIG_KEY
from whetstone_operator.resources.training import (
    MERGE,
    PREPARE,
    TRAIN,
    TrainingPlan,
    config_name,
    reference_model,
    stage_job_name,
    training_config_map,
    training_job,
    training_service,
)
from whetstone_operator.runtime.outcome import Stalled, Waiting
from whetstone_operator.runtime.queue import Result
from whetstone_operator.runtime.reconcile import Context, Step, Work, load, run_steps

Training = Work[LoRATrainingJob]
STAGES = (PREPARE, TRAIN, MERGE)
KEPT = ("adapter", "merged", "pushes", "cost")
"""What a retry takes nothing of: what lies outside of the cluster's objects, with which servers go on, and the cost."""


async def reconcile(context: Context, key: Key) -> Result:
    """Bring one LoRATrainingJob a step further."""
    work = await load(context, key, LoRATrainingJob)
    if work is None:
        return Result()
    accept_retry(work, keeps=KEPT)
    if has_ended(work):
        return await run_steps(work, [rest])
    return await run_steps(work, Attempt().steps())


class Attempt:
    """What the steps of one reconcile hand on to each other."""

    def __init__(self) -> None:
        self._jobs: dict[str, dict[str, Any]] = {}
        self._configured = False
        self._base: Source | None = None
        self._served_rank: int | None = None
        self._init: Source | None = None
        self._reference: Source | None = None
        self._collected: dict[str, FileSource] = {}
        self._published: TerminationReport | None = None
        self._killed: str | None = None

    def steps(self) -> list[Step[LoRATrainingJob]]:
        """Return the steps in their order."""
        return [
            self.find_jobs,
            self.hand_on_kills,
            self.change,
            self.suspend,
            self.progress,
            self.count_cost,
            self.watch_steps,
            self.hear_publication,
            self.resolve,
            self.check,
            self.prepare,
            self.train,
            self.merge,
            self.end,
        ]

    async def find_jobs(self, work: Training) -> None:
        """Find the Jobs of this attempt."""
        names = {stage: stage_job_name(work.resource, stage=stage, retry=handled_retry(work)) for stage in STAGES}
        found = await asyncio.gather(*(find_job(work, name) for name in names.values()))
        self._jobs = {stage: job for stage, job in zip(names, found, strict=True) if job is not None}

    async def hand_on_kills(self, work: Training) -> None:
        """Tell the next pod of those that were killed for want of memory, before anything takes them away."""
        self._killed = await hand_on_kills(work, self._jobs.get(TRAIN))

    async def change(self, work: Training) -> None:
        """Follow what of the spec may change."""
        await follow_changes(work, self._jobs)

    async def suspend(self, work: Training) -> None:
        """Follow `spec.suspend`."""
        await follow_suspension(work, list(self._jobs.values()))

    async def progress(self, work: Training) -> None:
        """Take over the latest report."""
        if TRAIN in self._jobs:
            work.status["attempts"] = attempts(self._jobs[TRAIN])
            if not is_finished(self._jobs[TRAIN]):
                hear_plan(work)
        reported = due_report(work)
        if reported is None:
            return
        work.status["progress"] = progress_of(reported).to_wire()

    async def count_cost(self, work: Training) -> None:
        """Count what the training has cost so far, where the price table names its devices."""
        prices = work.context.settings.prices
        if TRAIN not in self._jobs or not prices.devices:
            return
        name = self._jobs[TRAIN]["metadata"]["name"]
        pods = await work.context.kube.list(POD, work.namespace, {JOB_NAME_LABEL: name})
        told = {key: work.status.get(key) for key in ("cost", "progress")}
        cost = training_cost(
            TrainingCost.model_validate(told["cost"]) if told["cost"] else None,
            pods,
            prices,
            progress=TrainingProgress.model_validate(told["progress"]) if told["progress"] else None,
            now=work.now,
        )
        if cost is not None:
            work.status["cost"] = cost.to_wire()

    async def watch_steps(self, work: Training) -> None:
        """Start a training again that hangs."""
        await watch_steps(work, self._jobs.get(TRAIN))

    async def hear_publication(self, work: Training) -> None:
        """Take over what the trainer says it has published: servers need not wait for the end of its pod."""
        # A Job's name holds the object's uid: without one, the report is of a namesake that is gone.
        if self._jobs:
            hear_publication(work)

    async def resolve(self, work: Training) -> None:
        """Find base model and adapter to go on from. Once a Job exists, those that it was created for stay."""
        if self._jobs:
            self._base, self._init, self._reference, self._collected = await _configured_sources(work)
            self._configured = self._base is not None
        if self._base is None:
            self._base, self._served_rank = await _resolve_base(work)
            self._init = await resolve_init_adapter(work)
            self._reference = await resolve_reference_adapter(work)
            self._collected = await resolve_collected(work)

    async def check(self, work: Training) -> None:
        """Check what the pods mount, and write their configuration."""
        if self._configured:
            return
        if (problem := world_problem(work.resource)) is not None:
            raise Stalled(Reason.INVALID_SPEC, problem)
        await require_claims(work, _claim_fields(self._plan(work)))
        await require_authorities(work)
        await require_push_secrets(work)
        await require_datasets(work)
        await require_workspace(work)
        await require_pods(work, self._plan(work))
        plan = replace(self._plan(work), killed_pods=await kills_before(work))
        await work.context.kube.apply(training_config_map(plan))

    async def prepare(self, work: Training) -> None:
        """Render, mask and count the data; skipped once training has begun."""
        if TRAIN in self._jobs and (PREPARE not in self._jobs or "dataset" in work.status):
            return
        if self._is_merging(work):
            return
        report = await self._follow(work, PREPARE, Reason.PREPARING)
        result = report.result
        if "dataset" in result:
            work.status["dataset"] = read_result(work, DatasetReport, result["dataset"], reporter="trainer").to_wire()
        if "estimate" in result:
            estimate = read_result(work, MemoryEstimate, result["estimate"], reporter="trainer")
            cost = estimated_cost(estimate, training_job(self._plan(work), TRAIN), work.context.settings.prices)
            work.status["estimate"] = estimate.model_copy(update={"cost": cost}).to_wire()
        _take_warnings(work, report)
        if "adapter" in result:
            self._published = report
        else:
            # What an earlier attempt had published is gone from its place.
            withdraw_publication(work)

    async def train(self, work: Training) -> None:
        """Train, verify and publish; skipped where Prepare has found the adapter published."""
        if self._is_merging(work):
            return
        if self._published is None:
            if (service := training_service(self._plan(work))) is not None:
                await work.context.kube.apply(service)
            self._published = await self._follow(work, TRAIN, Reason.TRAINING)
        _take_adapter(work, self._published)

    async def merge(self, work: Training) -> None:
        """Merge the published adapter into the base model and push what is published, as the spec asks for it."""
        output = work.resource.spec.output
        if output.merged is None and not output.push:
            return
        report = await self._follow(work, MERGE, Reason.MERGING if output.merged else Reason.PUSHING)
        if output.merged is not None:
            merged = read_result(work, MergedModel, report.result.get("merged"), reporter="trainer")
            work.status["merged"] = merged.to_wire()
        take_pushes(work, report)

    async def end(self, work: Training) -> None:
        """Say that all that was asked for is published."""
        adapter = read_result(work, PublishedAdapter, work.status.get("adapter"), reporter="trainer")
        adopted = TRAIN not in self._jobs or bool(self._published and self._published.result.get("adopted"))
        merged = work.status.get("merged")
        also = f", merged into {merged['uri']} ({merged['digest'][:19]})" if merged else ""
        also += "".join(f", pushed to {push['uri']}" for push in work.status.get("pushes", []))
        conclude(
            work,
            reason=Reason.ADOPTED if adopted else Reason.SUCCEEDED,
            message=f"{'adopted' if adopted else 'published'} {adapter.uri} ({adapter.digest[:19]}){also}",
        )

    def _is_merging(self, work: Training) -> bool:
        """Return whether all before the merge is done: then its pods may be gone."""
        return MERGE in self._jobs and "adapter" in work.status

    def _plan(self, work: Training) -> TrainingPlan:
        if self._base is None:
            raise RuntimeError("the base model is resolved before it is used")
        return TrainingPlan(
            job=work.resource,
            base=self._base,
            init=self._init,
            reference=self._reference,
            settings=work.context.settings,
            retry=handled_retry(work),
            stalls=int(work.status.get("stalls") or 0),
            collected=self._collected,
            served_rank=self._served_rank,
        )

    async def _follow(self, work: Training, stage: str, reason: Reason) -> TerminationReport:
        job = self._jobs.get(stage)
        if job is None:
            job = await work.context.kube.create(training_job(self._plan(work), stage))
            self._jobs[stage] = job
            # What is said of a queue is said of the stage before.
            work.conditions.remove(ConditionType.QUOTA_RESERVED)
        try:
            return await finished_report(work, job, reason=reason)
        except Waiting as waiting:
            if stage != TRAIN or self._killed is None or waiting.reason != reason:
                raise
            raise Waiting(Reason.OUT_OF_MEMORY, self._killed, waiting.after_seconds) from None
        except JobFailed as failed:
            # A merge or a push that fails takes nothing back: what is published stays. Nor does a Prepare that fails
            # before it looks, after an earlier attempt has published.
            if stage == MERGE:
                keep_what_is_done(work, failed)
            elif stage == TRAIN or failed.reason == Reason.OUTPUT_OCCUPIED:
                withdraw_publication(work)
            raise


type _Sources = tuple[Source | None, Source | None, Source | None, dict[str, FileSource]]


async def _configured_sources(work: Training) -> _Sources:
    """Return base, adapter to go on from, reference's and collected rows as configured; no base: nothing is."""
    found = await work.context.kube.get(CONFIG_MAP, work.namespace, config_name(work.resource))
    try:
        config = json.loads((found or {})["data"][CONFIG_KEY])
        others = config.get("initAdapterSource"), (config.get("reference") or {}).get("adapterSource")
        init, reference = (Source(uri=uri) if uri else None for uri in others)
        return Source(uri=config["baseModelSource"]), init, reference, configured_collected(config["datasets"])
    except (KeyError, TypeError, ValueError):
        return None, None, None, {}


async def _resolve_base(work: Training) -> tuple[Source, int | None]:
    """Return the base model's folder, and the highest rank that its server loads, where one is named and says it."""
    base = work.resource.spec.base_model
    if base.source is not None:
        return base.source, None
    if base.model_server_ref is None:
        raise Stalled(Reason.INVALID_SPEC, "spec.baseModel: give exactly one of modelServerRef and source")
    name = base.model_server_ref.name
    server = await require_server(work, name, field="spec.baseModel.modelServerRef.name")
    rank, limit = work.resource.spec.lora.rank, server.spec.adapter_capacity.max_rank
    if isinstance(limit, int) and rank > limit:
        raise Stalled(
            Reason.RANK_NOT_SERVABLE,
            f"spec.lora.rank: {rank} is above spec.adapterCapacity.maxRank ({limit}) of ModelServer {name}; raise "
            "maxRank there or set it to Auto, or create the job with a lower rank",
        )
    return _model_of(server), limit if isinstance(limit, int) else None


def _model_of(server: ModelServer) -> Source:
    field, name = "spec.baseModel.modelServerRef.name", server.metadata.name
    asked = server.spec.model.source
    if asked is None:
        if server.status.model is None:
            raise Waiting(
                Reason.REFERENCE_NOT_READY, f"{field}: ModelServer {name} itself waits for the model of a training job"
            )
        return Source(uri=server.status.model.source)
    if asked.in_claim is None:
        raise Stalled(
            Reason.INVALID_SPEC,
            f"{field}: ModelServer {name} fetches its model from {asked.uri}; a training job reads claims only: put the"
            " same model into one and name it in spec.baseModel.source.uri of a new job",
        )
    return asked.in_claim


def _claim_fields(plan: TrainingPlan) -> dict[str, str]:
    job = plan.job
    fields = {f"spec.baseModel ({plan.base.uri})": plan.base.claim}
    if plan.init is not None:
        fields[f"spec.initAdapter ({plan.init.uri})"] = plan.init.claim
    for name, place in (("adapter", plan.reference), ("model", reference_model(job))):
        if place is not None:
            fields[f"spec.preference.reference.{name} ({place.uri})"] = place.claim
    fields |= dataset_claim_fields(job, plan.collected)
    if job.spec.workspace.claim_name is not None:
        fields["spec.workspace.claimName"] = job.spec.workspace.claim_name
    fields["spec.output.adapter.uri"] = job.spec.output.adapter.claim
    if job.spec.output.merged is not None:
        fields["spec.output.merged.uri"] = job.spec.output.merged.claim
    return fields | push_claim_fields(job)


def _take_adapter(work: Training, report: TerminationReport) -> None:
    adapter = read_result(work, PublishedAdapter, report.result.get("adapter"), reporter="trainer")
    work.status["adapter"] = adapter.to_wire()
    if "plan" in report.result:
        work.status["plan"] = read_result(work, ChosenPlan, report.result["plan"], reporter="trainer").to_wire()
    _take_warnings(work, report)
    metrics = report.result.get("metrics") or {}
    if metrics:
        work.status["metrics"] = {str(name): str(value)[:32] for name, value in metrics.items()}


def _take_warnings(work: Training, report: TerminationReport) -> None:
    if warnings := report.result.get("warnings"):
        work.status["warnings"] = [str(text)[:MAX_WARNING] for text in warnings[:MAX_WARNINGS]]
