"""Children of a BenchmarkRun: the configuration and the runner's Job."""

from dataclasses import dataclass
from typing import Any

from whetstone_api.benchmark_target import MeasuredTarget
from whetstone_api.benchmarkrun import BenchmarkRun, BenchmarkRunSpec
from whetstone_api.jobs import BenchmarkConfig, FetchedFolder, ObjectIdentity, RunConfig
from whetstone_api.modelserver import ModelServer
from whetstone_api.source import Source
from whetstone_api.vocabulary import CONFIG_PATH, Annotation, Label

from whetstone_operator.resources.access import runner_environment
from whetstone_operator.resources.agent_container import (
    agent_companion,
    code_claims,
    code_config_maps,
    code_volume,
)
from whetstone_operator.resources.fetching import dataset_path, fetch_companion, fetched_folders
from whetstone_operator.resources.job_pod import JobPlan, build_config_map, build_job, job_hash, report_url
from whetstone_operator.resources.judge import judge_environment, judge_url
from whetstone_operator.resources.oracle import verdicts_place
from whetstone_operator.resources.tooluse import tool_use_config, tool_use_config_maps, tool_use_environment
from whetstone_operator.settings import Settings

RUNNER_ACCOUNT = "whetstone-runner"
"""Service account of the runner: it creates the trials' pods. The chart makes it in each served namespace."""
BACKOFF_LIMIT = 4
"""Failed runner pods until the Job gives up; finished trials are kept from one to the next."""
COMPONENT = "benchmark"
RUN = "run"
"""The only stage."""
SEQUENCES_FLAG = "--max-num-seqs"
"""Option of `vllm serve`: requests that an engine works on at a time."""


@dataclass(frozen=True)
class Capacity:
    """How many requests a server works on at a time, and why."""

    requests: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class BenchmarkPlan:
    """A run with its references resolved.

    Args:
        run: The object.
        target: The version to measure.
        server_url: Base URL of the server's API, ending in `/v1`.
        adapter_source: Folder of the adapter, for its lineage; None for the base.
        baseline_output: Folder of the baseline's results.
        baseline_invalid: As in `RunConfig`.
        settings: What the administrator decided.
        retry: The retry request that this attempt answers.
        capacity: What bounds the trials at a time beside the spec.
    """

    run: BenchmarkRun
    target: MeasuredTarget
    server_url: str
    adapter_source: Source | None
    baseline_output: Source | None
    settings: Settings
    retry: str | None
    baseline_invalid: str | None = None
    capacity: Capacity | None = None

    @property
    def concurrency(self) -> int:
        """Trials at a time, over all shards."""
        asked = self.run.spec.concurrency
        return asked if self.capacity is None else min(asked, self.capacity.requests)


def config_name(run: BenchmarkRun) -> str:
    """Return the name of the ConfigMap with the configuration."""
    return f"{run.metadata.name}-config"


def run_job_name(run: BenchmarkRun, retry: str | None) -> str:
    """Return the name of the runner's Job, as in `b-run-1f2e3d4c`."""
    return f"{run.metadata.name}-run-{job_hash(run, retry)}"


def benchmark_config(plan: BenchmarkPlan) -> RunConfig:
    """Return what the runner reads."""
    spec, common = plan.run.spec, _common_config(plan)
    if spec.suite.tool_use is not None:
        return tool_use_config(spec.suite.tool_use, common)
    if spec.suite.harbor is None:
        raise ValueError("the schema lets no suite through that is none")
    return BenchmarkConfig(
        **dict(common),
        suite=spec.suite.harbor,
        dataset_path=dataset_path(spec.suite.harbor.dataset),
        verdicts_path=verdicts.mount_path if (verdicts := verdicts_place(spec)) else None,
        verdicts_uri=verdicts.uri if verdicts else None,
        agent_path=spec.agent.code_path,
    )


def _common_config(plan: BenchmarkPlan) -> RunConfig:
    run, spec = plan.run, plan.run.spec
    return RunConfig(
        object=ObjectIdentity(
            kind=run.kind_name, namespace=run.metadata.namespace, name=run.metadata.name, uid=run.metadata.uid
        ),
        report_url=report_url(run, plan.settings),
        server_url=plan.server_url,
        served_name=plan.target.served_name,
        adapter=plan.target.adapter,
        adapter_digest=plan.target.digest,
        engine=plan.target.engine,
        engine_check_url=plan.settings.engine_check_url(
            plural=run.plural, namespace=run.metadata.namespace, name=run.metadata.name
        ),
        turn_url=_turn_url(plan),
        adapter_path=plan.adapter_source.mount_path if plan.adapter_source else None,
        agent=spec.agent,
        sampling=spec.sampling,
        attempts=spec.attempts,
        pass_at_k=_told_ks(spec),
        prices=spec.prices,
        collect=spec.collect,
        discipline=spec.discipline,
        judge=spec.judge,
        judge_url=judge_url(run),
        concurrency=plan.concurrency,
        shards=spec.shards,
        output_path=spec.output.mount_path,
        output_uri=spec.output.uri,
        fetched=_fetched(plan),
        baseline_name=spec.baseline_ref.name if spec.baseline_ref else None,
        maximum_error_rate=spec.maximum_error_rate,
        baseline_path=plan.baseline_output.mount_path if plan.baseline_output else None,
        baseline_invalid=plan.baseline_invalid,
    )


def _turn_url(plan: BenchmarkPlan) -> str | None:
    """Return where a run asks for its turn; None for one that is started in its turn."""
    if plan.run.spec.queue_name is None:
        return None
    run = plan.run
    return plan.settings.turn_url(plural=run.plural, namespace=run.metadata.namespace, name=run.metadata.name)


def _told_ks(spec: BenchmarkRunSpec) -> list[int] | None:
    """Return each k that the spec or one of its gates asks for; None for the runner's own choice."""
    gates = {gate.k for gate in spec.gates or [] if gate.k is not None}
    if not gates:
        return spec.pass_at_k
    return sorted(gates | set(spec.pass_at_k or (1, spec.attempts)))


def benchmark_config_map(plan: BenchmarkPlan) -> dict[str, Any]:
    """Return the ConfigMap of the configuration."""
    config = benchmark_config(plan).to_json()
    return build_config_map(plan.run, name=config_name(plan.run), component=COMPONENT, config=config)


def claims(plan: BenchmarkPlan) -> dict[str, bool]:
    """Return whether each claim that the runner mounts is writable, by name."""
    read = set(plan.run.spec.suite.claims.values())
    read |= {source.claim for source in (plan.adapter_source, plan.baseline_output) if source}
    verdicts = verdicts_place(plan.run.spec)
    written = {source.claim for source in (plan.run.spec.output, verdicts) if source}
    return dict.fromkeys(read, False) | code_claims(plan.run.spec.agent) | dict.fromkeys(written, True)


def _fetched(plan: BenchmarkPlan) -> list[FetchedFolder]:
    return fetched_folders(plan.run, job=run_job_name(plan.run, plan.retry))


def benchmark_job(plan: BenchmarkPlan) -> dict[str, Any]:
    """Return the runner's Job; its annotation keeps which version it measures."""
    spec = plan.run.spec
    measured = plan.target.model_dump_json(by_alias=True, exclude_none=True)
    manifest = build_job(
        JobPlan(
            owner=plan.run,
            name=run_job_name(plan.run, plan.retry),
            settings=plan.settings,
            component=COMPONENT,
            labels={str(Label.HOLDS): spec.target.model_server_ref.name},
            annotations={str(Annotation.MEASURED_TARGET): measured, **_marks(plan)},
            image=spec.image or plan.settings.benchmark_image,
            arguments=("--config", CONFIG_PATH),
            config_map=config_name(plan.run),
            claims=claims(plan),
            config_maps=(*code_config_maps(spec.agent), *tool_use_config_maps(spec.suite.tool_use)),
            preparation=fetch_companion(spec, _fetched(plan), settings=plan.settings),
            companion=agent_companion(
                spec.agent,
                image=spec.image or plan.settings.benchmark_image,
                settings=plan.settings,
                code_volume=code_volume(spec.agent),
            ),
            resources=spec.resources,
            service_account=RUNNER_ACCOUNT if spec.suite.makes_pods else None,
            backoff_limit=BACKOFF_LIMIT,
            deadline_seconds=spec.active_deadline_seconds,
            queue=spec.queue_name,
            environment=(
                runner_environment(spec.target.model_server_ref.name),
                *judge_environment(spec),
                *tool_use_environment(spec.suite.tool_use),
            ),
        )
    )
    return in_shards(manifest, shards=spec.shards, concurrency=plan.concurrency)


def in_shards(manifest: dict[str, Any], *, shards: int, concurrency: int) -> dict[str, Any]:
    """Return a Job's manifest with a pod for each shard; the same for one.

    Args:
        manifest: The Job with one pod.
        shards: Number of shards. A shard that ends is done: it is not started anew with the others.
        concurrency: Trials at a time. Each shard that is at work runs one at least.
    """
    if shards == 1:
        return manifest
    spec = {
        **manifest["spec"],
        "completionMode": "Indexed",
        "completions": shards,
        "parallelism": min(shards, concurrency),
        "backoffLimit": (BACKOFF_LIMIT + 1) * shards - 1,
    }
    return {**manifest, "spec": spec}


def server_capacity(server: ModelServer) -> Capacity | None:
    """Return how many requests a server works on at a time, where its spec says it; None where it does not."""
    replicas = server.status.ready_replicas or 0
    arguments = server.spec.engine.extra_args or []
    for place, argument in enumerate(arguments):
        flag, _, value = argument.partition("=")
        if flag.replace("_", "-") != SEQUENCES_FLAG:
            continue
        text = value or (arguments[place + 1] if place + 1 < len(arguments) else "")
        if text.isdigit() and int(text) and replicas:
            return Capacity(int(text) * replicas, f"{SEQUENCES_FLAG} {text}, {replicas} ready replicas")
    return None


def _marks(plan: BenchmarkPlan) -> dict[str, str]:
    """Return the annotations by which a Job tells how it measures."""
    spec = plan.run.spec
    shared = {str(Annotation.SHARED): "true"} if spec.target.shared else {}
    turn = {str(Annotation.TURN): ""} if spec.queue_name is not None else {}
    return shared | turn | _lowered(plan)


def _lowered(plan: BenchmarkPlan) -> dict[str, str]:
    """Return the annotation by which a Job tells that it runs fewer trials at a time than were asked for."""
    asked, capacity = plan.run.spec.concurrency, plan.capacity
    if capacity is None or plan.concurrency == asked:
        return {}
    name = plan.run.spec.target.model_server_ref.name
    told = (
        f"{plan.concurrency} trials at a time instead of spec.concurrency {asked}: more than ModelServer {name} works "
        f"on ({capacity.reason}) would wait there and run out of time"
    )
    return {str(Annotation.LOWERED): told}
